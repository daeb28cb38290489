/** `deleteSandboxes` for a node that is in another network: its directory is the first argument. */
import { deleteSandboxes } from './delete-sandboxes.ts';

await deleteSandboxes(process.argv[2]!);
