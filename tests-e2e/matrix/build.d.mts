export function install(): void;
export function stage(bundler: string, name?: string): string;
export function build(bundler: string): string;
