-- A patch in ARGV is: flags (digits: payload?, result?), number of headers set,
-- of headers dropped, [payload], [result], name and value of each, names.

-- apply_patch applies the one at p. Somebody saves the job.
local function apply_patch(q, j, p)
  local payload, result = byte(ARGV[p], 1, 2)
  local set, drop = tonumber(ARGV[p + 1]), tonumber(ARGV[p + 2])
  local o = q.O .. j.id
  p = p + 3
  flag(j, 4)
  if payload == 49 then
    call('HSET', o, 'p', ARGV[p])
    p = p + 1
  end
  if result == 49 then
    call('HSET', o, 'y', ARGV[p])
    flag(j, 2)
    p = p + 1
  end
  for i = 1, set do
    call('HSET', o, 'h:' .. ARGV[p], ARGV[p + 1])
    call('HDEL', o, 'H:' .. ARGV[p])
    p = p + 2
  end
  for i = 1, drop do
    call('HDEL', o, 'h:' .. ARGV[p])
    call('HSET', o, 'H:' .. ARGV[p], '')
    p = p + 1
  end
end

-- special tells the lease of a running job that the job is not plain any more.
local function special(q, j)
  if j.K and byte(j.K) == 112 then call('HSET', q.K, j.lane, 's' .. sub(j.K, 2)) end
end
