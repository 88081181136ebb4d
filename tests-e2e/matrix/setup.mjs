import { install } from './build.mjs';

export default install;
