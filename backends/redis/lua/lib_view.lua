-- view gives a job for a reader: id, text, other things, failures, lease of its
-- lane, until. The lease may be another job's; until is '' when there is none.
local function view(q, id)
  local v = call('GET', q.J .. id)
  if not v then return nil end
  local head = whole(sub(v, 1, 640))
  local flags, glen = byte(head, 2) - 48, tonumber(sub(head, 121, 123))
  local lane = glen == 0 and '{' .. sub(head, 27, 42) .. ':' .. id or q.Q .. 'g' .. sub(head, 127, 126 + glen)
  local K = call('HGET', q.K, lane) or ''
  local untl = K ~= '' and call('ZSCORE', q.R .. sub(K, 2, 2), lane) or ''
  return { id, v, flags >= 4 and call('HGETALL', q.O .. id) or {},
    flags % 2 == 1 and call('LRANGE', q.Q .. 'f:' .. id, '0', '-1') or {}, K, untl }
end

-- bytes tells how much a view weighs in a reply.
local function bytes(v)
  local n = #v[2]
  for i = 3, 4 do
    for k = 1, #v[i] do n = n + #v[i][k] end
  end
  return n
end
