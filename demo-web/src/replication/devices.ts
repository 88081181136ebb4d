// The two devices and the server that they share.
import { element } from '../dom.ts';
import type { Log } from './device.ts';
import { DeviceView } from './view.ts';

export async function mountDevices(log: Log): Promise<void> {
  const notice = element('replication-absent');
  const show = (): void => {
    notice.hidden = !views.some((view) => view.isServerMissing);
  };
  const views = [new DeviceView('phone', 'Phone', log, show), new DeviceView('laptop', 'Laptop', log, show)] as const;
  element('replication-retry').addEventListener('click', () => {
    for (const view of views) void view.retry();
  });
  await Promise.all(views.map((view) => view.show()));
}
