// The kinds of changes in a commit as the engine sends it.
export const SET = 1;
export const DELETE = 2;
export const CLEAR = 3;
export const CODECS = 4;
export const DROP = 5;
export const RENAME = 6;
export const EXPIRE = 7;
