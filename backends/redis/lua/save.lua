-- lib: base queue text job patch
-- Changes a running job. KEYS: the queue's prefix. ARGV: lane, mark (token, ':',
-- id, line feed), id, patch. Reply: 1, or 0 when the lease is lost.
local q = open(KEYS[1])
local K = call('HGET', q.K, ARGV[1])
local j = K and string.find(K, ARGV[2], 43, true) == 43 and load(q, ARGV[3])
if not j or not j.K then return 0 end
call('HDEL', q.M, '-') -- a first write that is allowed when memory is full
apply_patch(q, j, 4)
special(q, j)
save_flags(j)
return 1
