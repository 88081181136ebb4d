import { testPlace } from './place.ts';

testPlace('phone');
