/**
 * What a program in the sandbox has switched on in our own terminal: the other screen, the mouse, pasting in brackets, a hidden cursor. Whoever
 * leaves while it runs gets a terminal without them.
 */
const switches = /\x1b\[\?([\d;]{1,40})([hl])/g;
/** Longer than any switch: one that two pieces share is found in the second. */
const keptLength = 50;
const cursorMode = 25;
/** Arrow keys; the cursor; the mouse in its ways; the other screen; pasting in brackets. */
const known: readonly number[] = [1, cursorMode, 9, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 47, 1047, 1049, 2004];

export class ScreenModes {
  readonly #isOn = new Map<number, boolean>();
  #kept = '';

  see(bytes: Uint8Array): void {
    const text = this.#kept + Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
    for (const [, modes = '', how] of text.matchAll(switches)) {
      for (const mode of modes.split(';')) if (known.includes(Number(mode))) this.#isOn.set(Number(mode), how === 'h');
    }
    // Only an unfinished switch is kept, or the same one would be seen twice.
    const lastEscape = text.lastIndexOf('\x1b', text.length);
    const rest = lastEscape === -1 ? '' : text.slice(lastEscape);
    this.#kept = rest.length < keptLength ? rest : '';
  }

  /** What takes all of it back. */
  undo(): string {
    const changed = [...this.#isOn].filter(([mode, isOn]) => isOn !== (mode === cursorMode));
    const modes = changed.map(([mode, isOn]) => `\x1b[?${mode}${isOn ? 'l' : 'h'}`).join('');
    return modes === '' ? '' : `${modes}\x1b[0m`;
  }
}
