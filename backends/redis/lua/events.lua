-- lib: base queue
-- Reads the event stream. KEYS: the queue's prefix. ARGV: token to go on behind
-- ('' from the start, '$' behind the newest), limit.
-- Reply: nothing, or the newest token, events..
local q = open(KEYS[1])
if not q.exists then return false end
local key = q.Q .. 'e'
if ARGV[1] == '$' then
  local last = call('EXISTS', key) == 1 and call('XINFO', 'STREAM', key) or {}
  for i = 1, #last, 2 do if last[i] == 'last-generated-id' then return { last[i + 1] } end end
  return { '0-0' }
end
local from = ARGV[1] == '' and '-' or '(' .. ARGV[1]
local oldest = int(max(0, floor((q.now - q.cfg[EVENTS]) / 1000)))
if q.cfg[EVENTS] > 0 and (ARGV[1] == '' or tonumber(string.match(ARGV[1], '^%d+')) < tonumber(oldest)) then from = oldest end
return { '', unpack(call('XRANGE', key, from, '+', 'COUNT', ARGV[2])) }
