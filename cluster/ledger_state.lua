-- The ledger of an account's lane: what gate.Shared.Exchange does, on an engine that many members share. This is its first
-- half, the state; ledger.lua is the second, what becomes of a message. They are one script.
--
-- All time is the engine's, in microseconds. Vectors have the amounts of the dimensions from requests to tokens per day;
-- numbers are written so that reading them gives the same.
--
-- Its first line is written by ledger.go: FORMAT is the version of the keys, another one is refused; DIMENSIONS is the number of
-- budgets; from the dimension DAILY on, budgets are a day's.

local LEASE     = 6e6     -- a slot is its member's for so long; a member that says nothing for so long is gone
local HEARTBEAT = 2e6     -- a slot is renewed so often; nothing is granted for so long after the engine has lost something
local SLOT_WAIT = 1e6     -- who waits for a slot asks again so late at the latest: it is woken before
local SLOT_TURN = 10e3    -- so much later for each call that goes before it,
local LONGEST_SLOT_WAIT = 10e6 -- and then at most
local PROBE_WAIT = 200e3  -- and who waits for the proof of others
local LONGEST_TURN = 4e6  -- for the turns of others, nobody is told to wait longer: they may be gone
local LATENESS  = 250e3   -- a member that does not ask in its turn keeps it for so long
local LEAST_TESTED = 1e6  -- shorter waits are not tested by one request
local FIRST_SILENCE, LONGEST_SILENCE = 10e6, 600e6 -- after it one is tested; doubled with each test until one is accepted
local LEAST_WAIT = 10e3   -- nobody is told to ask again sooner: so that one reply grants several calls
local BEGINNING = 250e3   -- members that begin together do so within this
local SETBACK   = 1e6     -- from so much on a clock that goes back matters
local GRAIN     = 50e3    -- what was spent before is known to so much
local KEPT      = 172800  -- seconds: what nobody uses for two days is forgotten
local GUARDS, PARTS_OF = {}, {} -- the fields of guards, of dimensions whose limits do not refer to a day, and of the older parts of their windows
for d = 1, DAILY - 1 do GUARDS[d], PARTS_OF[d] = 'g' .. d, 'q' .. d end
local MINUTE = 60e6
local PART = 250e3        -- members read the content of guards at multiples of it: see REMEMBERED
local GUARD_PARTS, LEAST_PART, GUARD_SLACK = 240, 50e3, 250e3 -- gate's guardParts, leastPart and guardSlack
local BACK = {1, 0, 2, 3} -- gate's guardBack
local REMEMBERED = 4      -- members are told the content of guards so many parts after they were told last
local ANY, CONCURRENCY = '0', '1' -- gate.AnyDimension, gate.Concurrency; budgets begin at 2

local LEASES, PROBES, WAITING, ORDER, IDLE, SERVED = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local ALL_LEASES, MEMBERS, RANKS, OUTAGES, WEIGHTS = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]

local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1e6 + clock[2]

-- Reading the message, and writing numbers.

local cursor = 0
local function nextarg()
  cursor = cursor + 1
  return ARGV[cursor]
end

local function text(x) return string.format('%.17g', x) end

local nowpart = math.floor(now / PART)
local nowtext, leaseends = text(now), text(now + LEASE)

-- number reads a number: tonumber does not know exponents everywhere.
local function number(s) return s + 0 end

local function numbers(s)
  local t = {}
  for n in string.gmatch(s or '', '%S+') do t[#t + 1] = number(n) end
  return t
end

-- six reads six numbers at once, which is quicker.
local function six(s)
  local a, b, c, d, e, f = string.match(s, '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
  return {a + 0, b + 0, c + 0, d + 0, e + 0, f + 0}
end

local NOTHING = '0 0 0 0 0 0'
local function vector(s) return six(s and s ~= '' and s or NOTHING) end

local function join(t)
  local s = {}
  for i = 1, #t do s[i] = text(t[i]) end
  return table.concat(s, ' ')
end

-- Keys that are written get their time to live at the end.

local written = {}
local function zadd(key, ...)
  written[key] = true
  return call('ZADD', key, ...)
end

-- addall adds many members with one score, or removes them.
local function addall(key, score, names)
  for from = 1, #names, 500 do
    local args = {}
    for i = from, math.min(from + 499, #names) do
      args[#args + 1] = score
      args[#args + 1] = names[i]
    end
    zadd(key, unpack(args))
  end
end

local function remove(key, names)
  for from = 1, #names, 500 do
    call('ZREM', key, unpack(names, from, math.min(from + 499, #names)))
  end
end

-- Guards. One keeps a configured limit: see gate's guard. n is the limit per period, and size that of a bucket (0: a sliding window).
-- A bucket refers to a minute. It has a level, the instant at of it, and since, its first use. A window has the sum of the amounts of all its parts, the
-- amount of the newest part, and in older, as text, those of older parts, the oldest first: " part:amount part:amount". So a grant
-- changes only the head, and older is read as far as is needed. A part has the length width, and an amount is in the window for stays parts.

local function window(g, period)
  g.period, g.width = period, math.max(math.ceil(period / GUARD_PARTS), LEAST_PART)
  g.stays = math.ceil(period / g.width) + 1 + math.ceil(GUARD_SLACK / g.width)
  return g
end

local function guardof(head, older)
  local h = six(head)
  if h[2] > 0 then return {n = h[1], size = h[2], since = h[3], at = h[4], level = h[5]} end
  return window({n = h[1], size = 0, part = h[4], amount = h[5], sum = h[6], older = older}, h[3])
end

local function headof(g)
  if g.size > 0 then return join({g.n, g.size, g.since, g.at, g.level, 0}) end
  return join({g.n, 0, g.period, g.part, g.amount, g.sum})
end

-- renew forgets the parts that have left the window.
local function renew(g)
  if g.size > 0 then
    if g.since == 0 then g.since, g.at = now, now end
    if now > g.at then g.level = math.min(g.size, g.level + (now - g.at) / MINUTE * g.n) end
    g.at, g.new = now, true
    return
  end
  local newest = math.floor(now / g.width)
  if g.part > newest + SETBACK / g.width then -- the clock was set back
    local by = g.part - newest
    g.older = string.gsub(g.older, '(%d+):', function(part) return text(part - by) .. ':' end)
    g.part, g.new, g.oldernew = newest, true, true
  end
  if g.part >= newest then return end
  if g.amount ~= 0 then
    g.older, g.amount, g.oldernew = g.older .. ' ' .. text(g.part) .. ':' .. text(g.amount), 0, true
  end
  g.part, g.new = newest, true
  local from = nil
  for part, amount, past in string.gmatch(g.older, '(%d+):(%S+)()') do
    if part + 0 > newest - g.stays then break end
    g.sum, from = g.sum - amount, past
  end
  if from then g.older, g.oldernew = string.sub(g.older, from), true end
  if g.older == '' then g.sum = 0 end
end

-- guardwait is how long until a guard has room for an amount.
local function guardwait(g, amount)
  renew(g)
  if g.size > 0 then return math.max(0, (math.min(amount, g.size) - g.level - 1e-9) * MINUTE / g.n) end
  local over = g.sum + math.min(amount, g.n) - g.n - 1e-9
  if over <= 0 then return 0 end
  for part, had in string.gmatch(g.older, '(%d+):(%S+)') do
    over = over - had
    if over <= 0 then return (part + g.stays) * g.width - now end
  end
  if over <= g.amount then return (g.part + g.stays) * g.width - now end
  return 0
end

-- move adds an amount to a part of the window, which is not below zero then, and returns what was added.
local function move(g, part, amount)
  if part <= g.part - g.stays or part > g.part then return 0 end
  if part == g.part then
    amount = math.max(amount, -g.amount)
    g.amount, g.sum, g.new = g.amount + amount, g.sum + amount, true
    return amount
  end
  local key = ' ' .. text(part) .. ':'
  local from = math.max(1, #g.older - 40 * (g.part - part)) -- an entry has less than 40 characters
  local first, last = string.find(g.older, key, from, true)
  local past, had = nil, 0
  if first then
    had, past = string.match(g.older, '^(%S+)()', last + 1)
  elseif amount <= 0 then
    return 0
  else
    first = #g.older + 1
    for before, other in string.gmatch(g.older, '()%s(%d+):') do
      if other + 0 > part then
        first = before
        break
      end
    end
    past = first
  end
  amount = math.max(amount, -had)
  local entry = had + amount ~= 0 and key .. text(had + amount) or ''
  g.older = string.sub(g.older, 1, first - 1) .. entry .. string.sub(g.older, past)
  g.sum, g.new, g.oldernew = g.sum + amount, true, true
  return amount
end

-- count adds an amount that was sent at an instant.
local function count(g, sent, amount)
  renew(g)
  if g.size > 0 then
    if sent >= g.since then g.level = math.min(g.size, g.level - amount) end
    return
  end
  local part = math.min(math.floor(sent / g.width), g.part)
  if amount > 0 then
    move(g, part, amount)
    return
  end
  for i = 1, #BACK do
    if amount == 0 then break end
    amount = amount - move(g, part - BACK[i], amount)
  end
end

-- guard has a record's guards count amounts that were sent at an instant.
local function guard(r, sent, amounts)
  for d, g in pairs(r.guards) do
    if amounts[d] ~= 0 then count(g, sent, amounts[d]) end
  end
end

-- guarded is how long until a record's guards have room for amounts, and the dimension that says so.
local function guarded(r, amounts)
  local longest, bound = 0, 0
  for d = 1, #GUARDS do
    local g = r.guards[d]
    if g and amounts[d] > 0 then
      local wait = guardwait(g, amounts[d])
      if wait > longest then longest, bound = wait, d + 1 end
    end
  end
  return longest, bound
end

-- keep is a guard of a limit in place of another one, whose amounts count for it, except if a bucket replaces a window.
local function keep(before, n, size, period)
  if size > 0 then return {n = n, size = size, since = 0, at = 0, level = size, new = true, oldernew = true} end
  local g = window({n = n, size = 0, amount = 0, sum = 0, older = '', new = true, oldernew = true}, period)
  g.part = math.floor(now / g.width)
  if before and before.size == 0 then
    renew(before)
    for part, amount in string.gmatch(before.older .. ' ' .. text(before.part) .. ':' .. text(before.amount), '(%d+):(%S+)') do
      if amount + 0 > 0 then count(g, (part + 1) * before.width - 1, amount + 0) end
    end
  end
  return g
end

-- configure has a limit per period be kept; 0 is none. burst is the size of a bucket in seconds of refill; 0 is a sliding window.
local function configure(r, d, n, burst, period)
  if d > #GUARDS then return end
  local g, size = r.guards and r.guards[d], burst > 0 and math.max(1, n * burst / 60) or 0
  if n == 0 then
    if g then r.guards[d] = nil end
  elseif not g or (g.size > 0) ~= (size > 0) or size == 0 and g.period ~= period then
    r.guards = r.guards or {}
    r.guards[d] = keep(g, n, size, period)
  elseif g.n ~= n or g.size ~= size then
    if size > 0 then g.level = g.level + math.min(0, size - g.size) end
    g.n, g.size, g.new = n, size, true
  end
end

-- contentof is all that a record's guards hold, as members are to remember it: when that was, what had been spent, and the guards.
local function contentof(r)
  local lines = {text(nowpart), join(r.spent)}
  for d, g in pairs(r.guards) do
    lines[#lines + 1] = d .. ' ' .. headof(g) .. '|' .. (g.older or '')
  end
  return table.concat(lines, '\n')
end

-- A record is the lane's hash, or that of all lanes of the account together. In r.f is the text of its fields.

local function load(key, leases)
  local raw, f = call('HGETALL', key), {}
  for i = 1, #raw, 2 do f[raw[i]] = raw[i + 1] end
  local r = {key = key, leases = leases, f = f, format = f.format or FORMAT, generation = f.generation or nowtext, budgets = {}}
  r.spent = vector(f.spent)
  for d = 1, DIMENSIONS do
    local b = f['b' .. d]
    if b then
      local n = numbers(b)
      r.budgets[d] = {level = n[1], at = n[2], rate = n[3], cap = n[4], period = n[5], ends = n[6], firm = n[7] == 1}
    end
  end
  for d = 1, #GUARDS do
    local head = f[GUARDS[d]]
    if head then
      r.guards = r.guards or {}
      r.guards[d] = guardof(head, f[PARTS_OF[d]] or '')
    end
  end
  local s, p = vector(f.slots), vector(f.pause)
  local since, wait, test = string.match(f.silence or '0 0 ', '(%S+) (%S+) (.*)')
  r.silence = {since = math.min(since, now), wait = wait + 0, test = test}
  r.slots = {version = s[1], limit = s[2], bad = s[3], refused = s[4], hold = s[5], ends = s[6]}
  r.pause = {epoch = p[1], probing = p[2] == 1, ramp = p[3], cause = p[4], ends = p[5], since = p[6]}
  r.virtual, r.hold, r.restored = number(f.virtual or '0'), number(f.hold or '0'), f.restored
  return r
end

local function slotstext(s) return join({s.version, s.limit, s.bad, s.refused, s.hold, s.ends}) end

local function pausetext(p) return join({p.epoch, p.probing and 1 or 0, p.ramp, p.cause, p.ends, p.since}) end

-- save writes what is not as it was, and leaves the text of all fields in r.f.
local function save(r)
  local f, changed = r.f, {}
  local function put(name, value)
    if f[name] ~= value then
      f[name] = value
      changed[#changed + 1] = name
      changed[#changed + 1] = value
    end
  end
  put('format', FORMAT)
  put('generation', r.generation)
  if r.spentnew then put('spent', join(r.spent)) end
  if r.meannew then put('mean', join(r.mean)) end
  for d = 1, DIMENSIONS do
    local b = r.budgets[d]
    if b and b.new then put('b' .. d, join({b.level, b.at, b.rate, b.cap, b.period, b.ends, b.firm and 1 or 0})) end
  end
  if r.slots.new then put('slots', slotstext(r.slots)) end
  if r.pause.new then put('pause', pausetext(r.pause)) end
  if r.silence.new then put('silence', join({r.silence.since, r.silence.wait}) .. ' ' .. r.silence.test) end
  if r.virtualnew then put('virtual', text(r.virtual)) end
  if r.grain then
    put('grain', r.grain)
    put('last', r.last)
  end
  if r.first then put('first', r.first) end
  if r.guards then
    for d = 1, #GUARDS do
      local g = r.guards[d]
      if g and g.new then put(GUARDS[d], headof(g)) end
      if g and g.oldernew then put(PARTS_OF[d], g.older or '') end
      if not g and f[GUARDS[d]] then call('HDEL', r.key, GUARDS[d], PARTS_OF[d]) end
    end
  end
  if r.restored then put('restored', r.restored) end
  if r.hold > 0 then put('hold', text(r.hold)) end
  if #changed > 0 then call('HSET', r.key, unpack(changed)) end
end

-- Budgets.

-- A budget is a bucket that refills all the time, or a window of a period, which is whole again at its end.

local function refill(b)
  if b.period > 0 then
    if b.ends > 0 and now >= b.ends then b.level, b.ends = b.cap, 0 end
  elseif now > b.at then b.level = math.min(b.cap, b.level + b.rate * ((now - b.at) / 1e6)) end
  b.at, b.new = now, true
end

-- take lowers a level, which opens a window.
local function take(b, amount)
  refill(b)
  b.level, b.new = b.level - amount, true
  if b.period > 0 and b.ends == 0 and b.level < b.cap then b.ends = now + b.period end
end

-- lasts is how long until a missing amount has flowed in.
local function lasts(b, short)
  if b.period == 0 then return short / b.rate * 1e6 end
  return math.max(0, b.ends - now) + math.max(0, math.ceil(short / math.max(1, b.cap)) - 1) * b.period
end

local function charge(r, cost)
  for d = 1, DIMENSIONS do
    if cost[d] ~= 0 then
      r.spent[d], r.spentnew = r.spent[d] + cost[d], true
      local b = r.budgets[d]
      if b then take(b, cost[d]) end
    end
  end
end

local function refund(r, amounts)
  for d = 1, DIMENSIONS do
    local b = r.budgets[d]
    if b and b.rate > 0 and amounts[d] ~= 0 then
      refill(b)
      b.level = math.min(b.cap, b.level + amounts[d])
    end
  end
end

-- behind is how long until cost fits beside what is left to others, and the dimension that says so. first is what the call of one
-- of them costs; nil is not known.
local function behind(r, cost, ahead, mean, first)
  local longest, bound = 0, 0
  for d = 1, DIMENSIONS do
    local b = r.budgets[d]
    if b and b.rate ~= 0 and cost[d] ~= 0 then
      refill(b)
      local left = first and (ahead - 1) * mean[d] + math.min(first[d], b.cap) or ahead * mean[d]
      local short = math.min(cost[d], b.cap) + left - b.level - 1e-9
      if short > 0 then
        local wait = math.max(lasts(b, short), math.min(LEAST_WAIT, b.cap / b.rate / 2 * 1e6))
        if wait > longest then longest, bound = wait, d + 1 end
      end
    end
  end
  return longest, bound
end

-- Slots.

local function room(r)
  if r.slots.limit == 0 then return math.huge end
  return math.floor(r.slots.limit) - call('ZCARD', r.leases)
end

-- What a member remembers and the engine does not: the engine was emptied, or has come back without its last words.

-- seen takes in how much the member saw spent.
local function seen(r, all, spent)
  for d = 1, DIMENSIONS do
    local lost = spent[d] - r.spent[d]
    if lost > 0 then
      local b = r.budgets[d]
      if b then take(b, lost) end
      r.spent[d], r.spentnew = spent[d], true
      all.hold = math.max(all.hold, now + HEARTBEAT)
    end
  end
end

local function restorebudget(r, d, m, first)
  local b = r.budgets[d]
  if not b or b.rate == 0 then
    b = {level = m[1], at = now, rate = m[3], cap = m[4], period = m[5], ends = 0, firm = m[7] == 1}
    r.budgets[d] = b
    if d < DAILY then b.level = math.min(b.level, 0) end
  elseif first and d < DAILY then
    b.level = math.min(b.level, 0)
  elseif d >= DAILY and first ~= nil then
    b.level = math.min(b.level, m[1])
  end
  b.at = now
  if b.period > 0 then b.ends = now + b.period end
  take(b, 0)
end

-- restoreguards takes over the guards of a member that remembers later grants than Redis does. It knows their content up to a second
-- before its last reply, and what was spent since, which is taken to be sent now. So a configured limit holds as well when Redis has
-- lost something: exactly for requests, and for tokens but for what requests of that second reserve beyond their cost. Only a grant
-- whose reply no member got is forgotten.
local function restoreguards(r, spent, memory)
  local had, content = string.match(memory.guards or '', '^[^\n]+\n([^\n]+)\n(.*)$')
  if not had then return end
  had = vector(had)
  for d, head, older in string.gmatch(content, '(%d) ([^|\n]+)|([^\n]*)') do
    d = d + 0
    if not (r.guards and r.guards[d]) or spent[d] > r.spent[d] then
      local g = guardof(head, older)
      r.guards = r.guards or {}
      r.guards[d] = g
      if spent[d] > had[d] then count(g, now, spent[d] - had[d]) end
      g.new, g.oldernew = true, true
    end
  end
end

-- restore gives a record back what the member remembers of it: name and text of fields.
local function restore(r, all, generation, memory)
  local first = nil -- is this the first that remembers another generation; nil: it is the same one
  if generation ~= '' and generation ~= r.generation then
    first = not r.restored
    r.restored = '1'
  end
  all.hold = math.max(all.hold, now + HEARTBEAT)
  for d = 1, DIMENSIONS do
    local m = numbers(memory['b' .. d])
    if #m == 7 then restorebudget(r, d, m, first) end
  end
  for d, n in ipairs(vector(memory.spent)) do
    r.spent[d], r.spentnew = math.max(r.spent[d], n), true
  end
  local s = numbers(memory.slots)
  if #s == 6 and s[1] > r.slots.version then
    r.slots = {version = s[1], limit = s[2], bad = s[3], refused = s[4], hold = s[5], ends = s[6], new = true}
  end
  local p = numbers(memory.pause)
  if #p == 6 and p[1] > r.pause.epoch then
    r.pause = {epoch = p[1], probing = p[2] == 1, ramp = p[3], cause = p[4],
      ends = math.max(p[5], r.pause.ends), since = p[6], new = true}
  end
end
