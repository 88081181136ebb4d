/** Removes what lies directly in the origin's private file system and is called so. A worker that has just ended may hold it for a moment. */
export async function removeEntries(isWanted: (name: string) => boolean): Promise<void> {
  const root = await navigator.storage.getDirectory();
  const names = [];
  for await (const name of root.keys()) if (isWanted(name)) names.push(name);
  for (const name of names) await removeEntry(root, name);
}

async function removeEntry(root: FileSystemDirectoryHandle, name: string): Promise<void> {
  for (let attempt = 0; ; attempt++) {
    try {
      await root.removeEntry(name, { recursive: true });
      return;
    } catch (error) {
      if (attempt === 50) throw error;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}
