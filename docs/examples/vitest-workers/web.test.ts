import { testPlace } from './place.ts';

testPlace('web');
