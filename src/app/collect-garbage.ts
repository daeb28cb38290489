/**
 * When a process that passes bytes on collects its garbage. By itself V8 begins a whole collection for every ten megabytes or so of buffers,
 * however soon they are let go, and takes longer for it than the bytes take to pass. With this it counts buffers and objects together, and
 * collects when both have grown by as much as the heap may: a fourth as often, for some tens of megabytes more.
 */
import { setFlagsFromString } from 'node:v8';

export function countBuffersWithObjects(): void {
  setFlagsFromString('--external-memory-accounted-in-global-limit');
}
