-- describe shows the group of a lane: name, tier, depth, member in front, its
-- lease, due, what blocks it.
local function describe(q, lane)
  local tier, block = call('HGET', q.T, lane), call('HGET', q.Q .. 'B', lane) or ''
  if not tier and block == '' then return nil end
  local K, due, depth = call('HGET', q.K, lane) or '', '', call('LLEN', lane)
  local member
  if K ~= '' then
    member, depth = string.match(K, '^([^\n]*)', 68), depth + 1
  else
    member = head_of(q, lane) or ''
  end
  if tier then due = call('ZSCORE', q.R .. tier, lane) or '' end
  return { sub(lane, #q.Q + 2), tier or '0', depth, member, K, due, block }
end
