/** What of the network each sandbox reaches, as JSON. Sandboxes that were made before reach nothing. */
export const network = {
  version: 2,
  statements: [`ALTER TABLE sandboxes ADD COLUMN network TEXT NOT NULL DEFAULT '{"mode":"none"}'`],
} as const;
