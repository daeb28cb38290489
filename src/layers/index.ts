/** What a root file system is made of. */
export { HostTemplate, removeUnfinishedTemplates, type TemplateLayers } from './host-template.ts';
