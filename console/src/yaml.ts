/** The YAML of an object without metadata.managedFields, which tells users nothing. */
export function withoutManagedFields(yaml: string): string {
  const kept: string[] = [];
  let inMetadata = false;
  let skipping = false;
  for (const line of yaml.split('\n')) {
    if (/^\S/.test(line)) inMetadata = line.startsWith('metadata:');
    if (skipping && !/^ {2}(- | )/.test(line)) skipping = false;
    if (inMetadata && line.startsWith('  managedFields:')) skipping = true;
    if (!skipping) kept.push(line);
  }
  return kept.join('\n');
}
