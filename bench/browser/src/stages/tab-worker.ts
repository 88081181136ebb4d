import { serve } from '../peers/rpc.ts';
import { tab } from './tab.ts';

serve(tab);
