-- lib: base queue text job patch
-- Changes a job. KEYS: the queue's prefix. ARGV: id, set of states, patch.
-- Reply: 0 not found, -state when it is in another state, 1 done.
local q = open(KEYS[1])
local j = load(q, ARGV[1])
if not j then return 0 end
local set = tonumber(ARGV[2])
if set ~= 0 and not has(set, j.s) then return -j.s end
call('HDEL', q.M, '-') -- a first write that is allowed when memory is full
apply_patch(q, j, 3)
special(q, j)
save_flags(j)
return 1
