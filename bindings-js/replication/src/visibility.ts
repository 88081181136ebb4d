/** Whether this is a hidden page: browsers run the timers of those once a second, or once a minute. */
export const isHidden = (): boolean => globalThis.document?.visibilityState === 'hidden';
