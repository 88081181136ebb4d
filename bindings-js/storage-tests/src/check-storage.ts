// Checks the promises of `CustomStorage`: several files, their names, and their content after
// reopening.
import { bytes, difference, readAt } from './bytes.ts';
import { DATA, LOG } from './context.ts';
import type { Check, Context } from './context.ts';

export function checkStorage(context: Context): Check[] {
  const { assert, check, equal, options } = context;
  const checks = [
    check('an empty storage lists nothing', ({ storage }) => equal(storage.list().length, 0, 'files')),

    check('files do not affect each other', (subject) => {
      const [data, log] = [subject.file(DATA), subject.file(LOG)];
      const [inData, inLog] = [bytes(200_000, 21), bytes(70_000, 22)];
      for (let at = 0; at < inData.length; at += 10_000) {
        data.write(at, inData.subarray(at, at + 10_000));
        if (at < inLog.length) log.write(at, inLog.subarray(at, at + 10_000));
      }
      log.truncate(50_000);
      equal(data.size(), inData.length, 'size of one');
      equal(log.size(), 50_000, 'size of the other');
      assert(
        difference(readAt(data, 0, inData.length), inData) === undefined,
        'the data file holds what was written to it',
      );
      assert(
        difference(readAt(log, 0, 50_000), inLog.subarray(0, 50_000)) === undefined,
        'the log holds what was written to it',
      );
    }),

    check('every file that was written to is listed once', async (subject) => {
      for (const name of [DATA, LOG]) {
        const file = subject.file(name);
        file.write(0, bytes(100, 23));
        file.flush();
      }
      equal([...subject.storage.list()].sort().join(), 'data,log', 'names');
      await subject.reopen();
      equal([...subject.storage.list()].sort().join(), 'data,log', 'names afterwards');
    }),

    check('a reopened file is unchanged', async (subject) => {
      const expected = bytes(300_000, 24);
      for (let round = 0; round < 4; round++) {
        const file = subject.file();
        const part = bytes(1000, 25 + round);
        if (round === 0) file.write(0, expected);
        equal(file.size(), expected.length, 'size');
        assert(difference(readAt(file, 0, expected.length), expected) === undefined, 'the content');
        file.write(round * 70_000, part);
        expected.set(part, round * 70_000);
        file.flush();
        await subject.reopen();
      }
      const file = subject.file();
      file.truncate(1234);
      file.flush();
      await subject.reopen();
      equal(subject.file().size(), 1234, 'size of the truncated file');
    }),
  ];
  if (options.removes === false) return checks;
  return [
    ...checks,
    check('remove removes one file, and removing a missing file is no error', async (subject) => {
      for (const name of [DATA, LOG]) {
        const file = subject.file(name);
        file.write(0, bytes(100_000, 26));
        file.flush();
      }
      await subject.reopen();
      subject.storage.remove(LOG);
      subject.storage.remove(LOG);
      subject.storage.remove('neither');
      equal(subject.storage.list().join(), DATA, 'what is left');
      equal(subject.file(DATA).size(), 100_000, 'its size');
      const again = subject.file(LOG);
      equal(again.size(), 0, 'size of a recreated file');
      again.truncate(100);
      assert(
        readAt(again, 0, 100).every((byte) => byte === 0),
        'it contains nothing of the removed file',
      );
    }),
  ];
}
