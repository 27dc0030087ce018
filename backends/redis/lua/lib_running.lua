-- The running jobs are those of the leases in K and are indexed nowhere else:
-- an index of them would cost every claim and settle, and only people list them.
-- index_running makes one, in the order of their claims, for the time of a script,
-- which removes it again.
local function index_running(q)
  local set, t = q.S .. RUNNING, {}
  call('DEL', set) -- a first write that is allowed when memory is full
  for _, K in ipairs(call('HVALS', q.K)) do
    local n = #t
    t[n + 1], t[n + 2] = sub(K, 19, 34), string.match(K, '^([^\n]*)', 68)
  end
  send('ZADD', set, t)
  return set
end
