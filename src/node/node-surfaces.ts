/** What a node answers through its parts: commands, files, processes, sessions and ports. Here each order only finds its way to the part that knows it. */
import type { NodeApi } from '../protocol/index.ts';
import type { CommandCalls } from './command-calls.ts';
import type { FileCalls } from './file-calls.ts';
import type { PortCalls } from './port-calls.ts';
import type { SandboxProcesses } from './sandbox-processes.ts';

export abstract class NodeSurfaces {
  protected abstract readonly commands: CommandCalls;
  protected abstract readonly files: FileCalls;
  protected abstract readonly processes: SandboxProcesses;
  protected abstract readonly ports: PortCalls;

  readonly exec: NodeApi['exec'] = (order, signal) => this.commands.exec(order, signal);
  readonly findRun: NodeApi['findRun'] = (order) => this.commands.findRun(order);
  readonly load: NodeApi['load'] = (order) => this.commands.load(order);

  readonly fileAction: NodeApi['fileAction'] = (order) => this.files.fileAction(order);
  readonly fileChanges: NodeApi['fileChanges'] = (order) => this.files.fileChanges(order);
  readonly readFile: NodeApi['readFile'] = (order, signal) => this.files.readFile(order, signal);
  readonly writeFile: NodeApi['writeFile'] = (order, bytes, signal) => this.files.writeFile(order, bytes, signal);
  readonly readTree: NodeApi['readTree'] = (order, signal) => this.files.readTree(order, signal);
  readonly writeTree: NodeApi['writeTree'] = (order, tar, signal) => this.files.writeTree(order, tar, signal);
  readonly watchFiles: NodeApi['watchFiles'] = (order, signal) => this.files.watchFiles(order, signal);

  readonly startProcess: NodeApi['startProcess'] = (order) => this.processes.startProcess(order);
  readonly getProcess: NodeApi['getProcess'] = (order) => this.processes.getProcess(order);
  readonly listProcesses: NodeApi['listProcesses'] = (order) => this.processes.listProcesses(order);
  readonly followProcess: NodeApi['followProcess'] = (order, signal) => this.processes.followProcess(order, signal);
  readonly writeStdin: NodeApi['writeStdin'] = (order) => this.processes.writeStdin(order);
  readonly signalProcess: NodeApi['signalProcess'] = (order) => this.processes.signalProcess(order);
  readonly killProcesses: NodeApi['killProcesses'] = (order) => this.processes.killProcesses(order);
  readonly waitProcess: NodeApi['waitProcess'] = (order, signal) => this.processes.waitProcess(order, signal);
  readonly removeProcess: NodeApi['removeProcess'] = (order) => this.processes.removeProcess(order);
  readonly probePort: NodeApi['probePort'] = (order, signal) => this.processes.probePort(order, signal);

  readonly createSession: NodeApi['createSession'] = (order) => this.processes.sessions.createSession(order);
  readonly getSession: NodeApi['getSession'] = (order) => this.processes.sessions.getSession(order);
  readonly listSessions: NodeApi['listSessions'] = (order) => this.processes.sessions.listSessions(order);
  readonly execInSession: NodeApi['execInSession'] = (o, signal) => this.processes.sessions.execInSession(o, signal);
  readonly setSessionEnv: NodeApi['setSessionEnv'] = (order) => this.processes.sessions.setSessionEnv(order);
  readonly startSessionProcess: NodeApi['startSessionProcess'] = (o) => this.processes.sessions.startSessionProcess(o);
  readonly deleteSession: NodeApi['deleteSession'] = (order) => this.processes.sessions.deleteSession(order);
  readonly listPorts: NodeApi['listPorts'] = (order) => this.ports.listPorts(order);
  readonly openPort: NodeApi['openPort'] = (order, signal) => this.ports.openPort(order, signal);
}
