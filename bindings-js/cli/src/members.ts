// The members of a JSON object as they are written.

/** Where the string that begins at `at` ends. */
function endOfString(text: string, at: number): number {
  for (let end = at + 1; end < text.length; end++) {
    if (text[end] === '\\') end++;
    else if (text[end] === '"') return end + 1;
  }
  return text.length;
}

/** Where the value that begins at `at` ends. */
function endOfValue(text: string, at: number): number {
  for (let [end, depth] = [at, 0]; end < text.length; ) {
    const character = text[end] as string;
    if (character === '"') {
      end = endOfString(text, end);
      continue;
    }
    if (depth === 0 && (character === ',' || character === '}')) return end;
    if (character === '[' || character === '{') depth++;
    else if (character === ']' || character === '}') depth--;
    end++;
  }
  return text.length;
}

/** The texts of an object's members, from valid JSON; `undefined` if it is no object or has two members of one name. */
export function memberTexts(text: string): Map<string, string> | undefined {
  const members = new Map<string, string>();
  const skip = (at: number): number => at + (/^[\t\n\r ]*/.exec(text.slice(at, at + 64))?.[0].length ?? 0);
  const past = (at: number): number => {
    let end = skip(at);
    for (let from = at; end !== from; end = skip(end)) from = end;
    return end;
  };
  let at = past(0);
  if (text[at] !== '{') return undefined;
  for (at = past(at + 1); text[at] === '"'; ) {
    const end = endOfString(text, at);
    const name = JSON.parse(text.slice(at, end)) as string;
    const from = past(past(end) + 1);
    const to = endOfValue(text, from);
    if (members.has(name)) return undefined;
    members.set(name, text.slice(from, to).trimEnd());
    at = text[to] === ',' ? past(to + 1) : to;
  }
  return members;
}
