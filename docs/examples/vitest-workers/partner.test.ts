import { testPlace } from './place.ts';

testPlace('partner');
