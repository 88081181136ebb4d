import { testPlace } from './place.ts';

testPlace('box-office');
