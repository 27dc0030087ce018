-- A line has the waiting members of a group by their places, and jobs of one
-- place by their Seqs. It is a list: nearly all comes in behind and goes out in
-- front, which takes a list less time than a sorted set. A place is the Seq or
-- a time before any later Seq, so a publish appends.

local function head_of(q, lane) return call('LINDEX', lane, '0') end

-- place_of gives the place of a member and, for jobs of one place, its Seq.
local function place_of(q, member)
  local v, seq = call('GETRANGE', q.J .. sub(member, 18), '0', '103'), tonumber(sub(member, 1, 16))
  local place = byte(v) ~= 48 and tonumber(sub(v, 89, 104)) or 0
  return place == 0 and seq or place, seq
end

-- rank_of tells how many members in the line stand before a place.
local function rank_of(q, lane, place, seq)
  local lo, hi = 0, call('LLEN', lane)
  while lo < hi do
    local mid = floor((lo + hi) / 2)
    local p, s = place_of(q, call('LINDEX', lane, mid))
    if p < place or p == place and s < seq then lo = mid + 1 else hi = mid end
  end
  return lo
end

-- effort counts what was done in long lines, in members looked at: who acts on many
-- jobs stops when it is much.
local effort = 0

-- stand puts a member at its place. Most come back to the front, or join near the
-- end. In the middle the server looks for the place, or what is behind is taken out
-- and put back, whichever is less work: moving one counts as looking at 50.
local function stand(q, lane, place, member)
  local seq = tonumber(sub(member, 1, 16))
  local head = head_of(q, lane)
  if not head then return call('RPUSH', lane, member) end
  local p, s = place_of(q, head)
  if place < p or place == p and seq < s then return call('LPUSH', lane, member) end
  local rank = rank_of(q, lane, place, seq)
  local behind = call('LLEN', lane) - rank
  if behind == 0 then return call('RPUSH', lane, member) end
  effort = effort + min(rank, 50 * behind)
  if 50 * behind > rank then return call('LINSERT', lane, 'BEFORE', call('LINDEX', lane, rank), member) end
  local later = call('LRANGE', lane, rank, '-1')
  call('LTRIM', lane, '0', rank - 1)
  call('RPUSH', lane, member)
  send('RPUSH', lane, later)
end

-- step_out takes a member out of the line, looking from the nearer end of a long one.
local function step_out(q, lane, member)
  if call('LINDEX', lane, '0') == member then return call('LPOP', lane) end
  local n, from = call('LLEN', lane), 1
  if n > 1000 then
    local rank = rank_of(q, lane, place_of(q, member))
    if 2 * rank > n then from = -1 end
    effort = effort + min(rank, n - rank) + 2000
  end
  return call('LREM', lane, from, member)
end
