/** Every route, by name: what the server binds, the documents describe and the SDK calls. */
import * as events from './events.ts';
import * as exec from './exec.ts';
import * as files from './files.ts';
import * as leases from './leases.ts';
import * as processes from './processes.ts';
import * as sandboxes from './sandboxes.ts';
import * as terminals from './terminals.ts';
import * as who from './who.ts';

export const routes = {
  createSandbox: sandboxes.createSandbox,
  listSandboxes: sandboxes.listSandboxes,
  getSandbox: sandboxes.getSandbox,
  updateSandbox: sandboxes.updateSandbox,
  stopSandbox: sandboxes.stopSandbox,
  startSandbox: sandboxes.startSandbox,
  deleteSandbox: sandboxes.deleteSandbox,
  getMetadata: sandboxes.getMetadata,
  patchMetadata: sandboxes.patchMetadata,
  listMetadataHistory: sandboxes.listMetadataHistory,
  exec: exec.execCommand,
  startProcess: processes.startProcess,
  listProcesses: processes.listProcesses,
  getProcess: processes.getProcess,
  readProcessOutput: processes.readProcessOutput,
  writeProcessStdin: processes.writeProcessStdin,
  signalProcess: processes.signalProcess,
  killProcesses: processes.killProcesses,
  waitProcess: processes.waitProcess,
  removeProcess: processes.removeProcess,
  probePort: processes.probePort,
  openTerminal: terminals.openTerminal,
  listTerminals: terminals.listTerminals,
  getTerminal: terminals.getTerminal,
  attachTerminal: terminals.attachTerminal,
  resizeTerminal: terminals.resizeTerminal,
  signalTerminal: terminals.signalTerminal,
  destroyTerminal: terminals.destroyTerminal,
  readFile: files.readFile,
  writeFile: files.writeFile,
  statFile: files.statFile,
  listFiles: files.listFiles,
  makeDirectory: files.makeDirectory,
  moveFile: files.moveFile,
  copyFile: files.copyFile,
  removeFile: files.removeFile,
  changeFileAttributes: files.changeFileAttributes,
  downloadTree: files.downloadTree,
  uploadTree: files.uploadTree,
  watchFiles: files.watchFiles,
  acquireLease: leases.acquireLease,
  renewLease: leases.renewLease,
  releaseLease: leases.releaseLease,
  holdLease: leases.holdLease,
  listLeases: leases.listLeases,
  whoAmI: who.whoAmI,
  createKey: who.createKey,
  listKeys: who.listKeys,
  revokeKey: who.revokeKey,
  createSandboxToken: who.createSandboxToken,
  createUser: who.createUser,
  listUsers: who.listUsers,
  createTeam: who.createTeam,
  listTeams: who.listTeams,
  listEvents: events.listEvents,
  getOperation: events.getOperation,
  createWebhook: events.createWebhook,
  listWebhooks: events.listWebhooks,
  deleteWebhook: events.deleteWebhook,
  reconcile: events.reconcile,
} as const;

export type RouteName = keyof typeof routes;
