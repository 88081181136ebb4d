'use client';

import { useEffect } from 'react';
import { report } from '../app.js';

export default function Page() {
  useEffect(() => {
    report();
  }, []);
  return <p>Matrix</p>;
}
