-- lib: base queue line groups
-- Lists groups by name. KEYS: the queue's prefix. ARGV: limit, name to go on behind.
-- Reply: 0 when there is no queue; else 1, the name to go on behind ('' at the
-- end), groups..
local q = open(KEYS[1])
if not q.exists then return { 0 } end
local limit = tonumber(ARGV[1])
local from = ARGV[2] == '' and '-' or '(' .. q.Q .. 'g' .. ARGV[2]
local names = call('ZRANGEBYLEX', q.Q .. 'i', from, '+', 'LIMIT', 0, limit + 1)
local out = { 1, '' }
for i = 1, min(limit, #names) do out[#out + 1] = describe(q, names[i]) end
if #names > limit then out[2] = sub(names[limit], #q.Q + 2) end
return out
