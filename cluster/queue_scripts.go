package cluster

// The keys of a job, in the order in which every script gets them. They share a hash tag, so that they lie on one node.
//
//	job      hash: v, name, input, settings, window; owner, token, until, host, pid of the collector; seq, which every write
//	         of a collector raises; parked, bytes (of the results there), done, poisoned, repeated, rebuilt; finished; seen (when
//	         a worker last spoke), grace (until when nobody is taken for dead), stopped (why a worker stopped, if none has
//	         given a sign of life since)
//	tasks    stream with the group w, whose consumers are the workers: number and payload, as name and value of one field, which
//	         is what costs least; an entry stays until its task is completed, pending with the worker that has it, or with "-"
//	         while it is for later
//	results  stream: number and payload likewise, and d (deliveries) if it was not one, x (the last worker) if it was poison; an
//	         entry stays until it is recorded
//	queued   bitmap of the numbers that were added
//	done     bitmap of the numbers that have a result
//	leases   set of the workers, by the instant at which each is taken for dead
//	later    set by the instant at which a task that was handed back is due
//	tries    hash: deliveries that count, of tasks that had other than one
//	waiting  set of the channels of workers that found nothing, by the instant
//	workers  hash: the last sign of life, process and host of each
//
// A number that is queued and not done has exactly one entry in tasks, as scripts change all of it together and the engine
// keeps or loses a script's changes as one. That is why Add can be repeated without asking what the engine still has.
var queueKeys = [...]string{"job", "tasks", "results", "queued", "done", "leases", "later", "tries", "waiting", "workers"}

// scriptStart names the keys, and reads the engine's clock: no host's clock decides anything.
const scriptStart = `
local job, tasks, results, queued, done, leases, later, tries, waiting, workers = unpack(KEYS)
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function wake(n)
	while n > 0 do
		local w = call('ZPOPMIN', waiting)
		if not w[1] then return end
		local heard = redis.pcall('PUBLISH', w[1], job)
		if type(heard) ~= 'number' or heard > 0 then n = n - 1 end
	end
end
`

// workerStart notices that no worker has spoken for half a lease. Then it was the engine that was away, stopped or restarted,
// and they all get a lease's time to say that they still have their tasks: else each outage would have every call made twice.
// (If they are all dead, whoever comes next waits a little longer.)
const workerStart = scriptStart + `
local function spoken(seen, grace, lease)
	seen, grace = tonumber(seen or now), tonumber(grace or 0)
	if seen > now + 1000 then -- the engine's clock was set back
		for _, who in ipairs(call('ZRANGEBYSCORE', leases, '(' .. now + lease, '+inf')) do call('ZADD', leases, now + lease, who) end
		seen, grace = now, now + lease
		call('HSET', job, 'grace', grace)
	end
	if now - seen > lease / 2 then
		grace = now + lease
		call('HSET', job, 'grace', grace)
	end
	if now - seen > lease / 8 or seen == now then call('HSET', job, 'seen', now) end
	return grace
end
`

// collectorStart admits only the collector that has the job: a lower token has lost it to another, and counters that went
// backwards mean that the engine has lost what the collector had written. ARGV: token, owner, seq.
const collectorStart = scriptStart + `
local has = call('HMGET', job, 'token', 'owner', 'seq', 'finished')
local token = tonumber(ARGV[1])
if not has[1] then return {'gone'} end
if tonumber(has[1]) > token or (tonumber(has[1]) == token and has[2] ~= ARGV[2]) then return {'fenced'} end
if has[4] or tonumber(has[1]) < token or tonumber(has[3]) < tonumber(ARGV[3]) then return {'gone'} end
local seq = call('HINCRBY', job, 'seq', 1)
`

// scriptCollect makes or takes up a job. ARGV: version, owner, host, pid, name, input, settings, window, lease in ms, token
// (0: a collector that has none yet), seq.
var scriptCollect = newScript(scriptStart + `
local v, input, owner, token, till, finished, seq = unpack(call('HMGET', job, 'v', 'input', 'owner', 'token', 'until',
	'finished', 'seq'))
local mine = tonumber(ARGV[10])
if finished then
	token = tonumber(token or 0)
	if mine == 0 then mine = token + 1 elseif token > mine or (token == mine and owner ~= ARGV[2]) then return {'fenced'} end
	call('DEL', job)
	v, token, till, seq = false, false, false, false
end
if v then
	if v ~= ARGV[1] then return {'version', v} end
	if tonumber(till) > now + ARGV[9] then -- the engine's clock was set back
		till = now + ARGV[9]
		call('HSET', job, 'until', till)
	end
	local alive = tonumber(till) > now and owner ~= ARGV[2]
	token = tonumber(token)
	if mine > 0 then
		if token > mine or (token == mine and alive) then return {'fenced'} end
	else
		if alive then
			local who = call('HMGET', job, 'host', 'pid')
			return {'held', who[1], who[2]}
		end
		mine = token + 1
	end
	if input ~= ARGV[6] then
		if ARGV[10] ~= '0' or call('XLEN', tasks) > 0 or call('XLEN', results) > 0 then return {'input'} end
		wake(1e9)
		call('UNLINK', unpack(KEYS)) -- nothing is left of it: all was recorded, or taken back
	end
end
if mine == 0 then mine = 1 end
seq = math.max(tonumber(seq or 0), tonumber(ARGV[11])) + 1
call('HSET', job, 'v', ARGV[1], 'owner', ARGV[2], 'host', ARGV[3], 'pid', ARGV[4], 'name', ARGV[5], 'input', ARGV[6],
	'settings', ARGV[7], 'window', ARGV[8], 'until', now + ARGV[9], 'token', mine, 'seq', seq, 'parked', 0)
if ARGV[10] ~= '0' then call('HINCRBY', job, 'rebuilt', 1) else call('HDEL', job, 'stopped') end
if call('EXISTS', tasks) == 0 then call('XGROUP', 'CREATE', tasks, 'w', '0', 'MKSTREAM') end
return {'ok', mine, seq}
`)

// scriptAdd adds tasks. ARGV from 4: 1 if they are to be done although they have results, which the collector knows to be lost;
// numbers and payloads. The answer has, from 3, the numbers that were not added because they have a result.
var scriptAdd = newScript(collectorStart + `
local out, added = {'ok', seq}, 0
for i = 5, #ARGV, 2 do
	local n, new = ARGV[i], true
	if call('SETBIT', queued, n, '1') == 1 then
		new = false
		if call('GETBIT', done, n) == 1 then
			if ARGV[4] == '1' then
				call('SETBIT', done, n, '0')
				new = true
			else
				out[#out+1] = n
			end
		end
	end
	if new then
		call('XADD', tasks, '*', n, ARGV[i+1])
		added = added + 1
	end
end
wake(added)
return out
`)

// scriptTrim removes recorded results. ARGV from 4: the bytes of their payloads with a minus, the ids.
var scriptTrim = newScript(collectorStart + `
local n = call('XDEL', results, unpack(ARGV, 5))
if n == #ARGV - 4 then
	if call('HINCRBY', job, 'bytes', ARGV[4]) < 0 then call('HSET', job, 'bytes', 0) end
end
if call('XLEN', results) == 0 then call('HSET', job, 'bytes', 0) end
wake(n)
return {'ok', seq}
`)

// scriptBeat renews the collector's lease, and forgets workers that have been silent for a minute. ARGV from 4: lease in ms,
// results that the collector keeps for tasks not added yet. The answer has the numbers of results and of tasks in the engine.
var scriptBeat = newScript(collectorStart + `
call('HSET', job, 'parked', ARGV[5])
if call('HGET', job, 'until') ~= '0' then call('HSET', job, 'until', now + ARGV[4]) end -- it was not released meanwhile
local all = call('HGETALL', workers)
for i = 1, #all, 2 do
	if tonumber(string.match(all[i+1], '^%d+')) < now - 60000 then call('HDEL', workers, all[i]) end
end
return {'ok', seq, call('XLEN', results), call('XLEN', tasks)}
`)

// scriptFinish ends a job. A word of it stays for a day, so that a worker that comes late knows that nobody waits for it, and an
// earlier collector that it has lost it.
var scriptFinish = newScript(collectorStart + `
local v, name, input = unpack(call('HMGET', job, 'v', 'name', 'input'))
wake(1e9)
call('UNLINK', unpack(KEYS))
call('HSET', job, 'v', v, 'name', name, 'input', input, 'finished', 1, 'token', ARGV[1], 'owner', ARGV[2])
call('PEXPIRE', job, 86400000)
return {'ok', seq}
`)

// scriptRelease lets go of the collector's lease.
var scriptRelease = newScript(collectorStart + `
call('HSET', job, 'until', 0)
return {'ok', seq}
`)

// scriptTake gives tasks to a worker: those handed back that are due, then those whose worker is dead, then new ones, of which
// it stops at 4 MB. ARGV: version, consumer, tasks wanted, lease in ms, most deliveries, channel, most bytes of results.
// The answer: ok, the collector, how long in ms there is nothing else if nobody wakes the worker, tasks.
var scriptTake = newScript(workerStart + `
local v, finished, window, parked, bytes, owner, rebuilt, seen, grace = unpack(call('HMGET', job, 'v', 'finished', 'window',
	'parked', 'bytes', 'owner', 'rebuilt', 'seen', 'grace'))
if not v then return {'gone'} end
if v ~= ARGV[1] then return {'version', v} end
if finished then return {'finished'} end
grace = spoken(seen, grace, ARGV[4])
call('ZADD', leases, now + ARGV[4], ARGV[2])
local me, want, out = ARGV[2], tonumber(ARGV[3]), {}
if call('XLEN', results) - parked >= tonumber(window) or tonumber(bytes or 0) >= tonumber(ARGV[7]) then
	call('ZADD', waiting, now, ARGV[6])
	return {'ok', owner, 2000, out}
end
local function forget(id)
	call('XACK', tasks, 'w', id)
	call('XDEL', tasks, id)
	call('HDEL', tries, id)
end
local function again(id, n)
	local e = call('XCLAIM', tasks, 'w', me, 0, id, 'FORCE')[1]
	if not e then return call('HDEL', tries, id) end
	if call('GETBIT', done, e[2][1]) == 1 then return forget(id) end
	call('HSET', tries, id, n)
	e[3] = n
	out[#out+1] = e
end
for _, id in ipairs(call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, want)) do
	call('ZREM', later, id)
	again(id, (call('HGET', tries, id) or 0) + 1)
end
local dead = {}
if #out < want and now >= grace then dead = call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, 10) end
for _, who in ipairs(dead) do
	local asked = want - #out
	if asked == 0 then break end
	local had = call('XPENDING', tasks, 'w', '-', '+', asked, who)
	for _, p in ipairs(had) do
		local id = p[1]
		local n = tonumber(call('HGET', tries, id) or 1)
		if n < tonumber(ARGV[5]) then
			again(id, n + 1)
		else
			local e = call('XRANGE', tasks, id, id)[1]
			if e and call('SETBIT', done, e[2][1], 1) == 0 then
				call('XADD', results, '*', e[2][1], '', 'd', n, 'x', who)
				call('HINCRBY', job, 'done', 1)
				call('HINCRBY', job, 'poisoned', 1)
			end
			forget(id)
		end
	end
	if #had < asked then -- it has nothing left
		call('ZREM', leases, who)
		call('HDEL', workers, who)
		call('XGROUP', 'DELCONSUMER', tasks, 'w', who)
	end
end
local size, step = 0, 8
while #out < want and size < 4194304 do
	local asked = math.min(step, want - #out)
	local new = call('XREADGROUP', 'GROUP', 'w', me, 'COUNT', asked, 'STREAMS', tasks, '>')
	if not new then break end
	new = new[1][2]
	for _, e in ipairs(new) do
		if rebuilt and call('GETBIT', done, e[2][1]) == 1 then
			forget(e[1]) -- it came back, and what it was before has been done
		else
			out[#out+1] = e
			size = size + #e[2][2]
		end
	end
	if #new < asked then break end
	if size < 4096 * step then step = step * 8 else step = 1 end
end
local wait = 0
if #out < want and size < 4194304 then
	wait = 2000
	for _, set in ipairs({leases, later}) do
		local first = call('ZRANGE', set, 0, 0, 'WITHSCORES')
		local due = tonumber(first[2])
		if due and set == leases then due = math.max(due, grace) end
		if due then wait = math.max(1, math.min(wait, due - now)) end
	end
	call('ZADD', waiting, now, ARGV[6])
end
return {'ok', owner, wait, out}
`)

// scriptComplete hands in results. ARGV: version, input, 1 if the same was sent before and the answer lost; then id, number,
// payload. What is dropped because its number has a result is counted.
var scriptComplete = newScript(scriptStart + `
local v, input, finished = unpack(call('HMGET', job, 'v', 'input', 'finished'))
if not v then return {'gone'} end
if v ~= ARGV[1] or finished or input ~= ARGV[2] then return {'finished'} end
local first, bytes, repeated, ids = 0, 0, 0, {}
local counted = call('EXISTS', tries) == 1
for i = 4, #ARGV, 3 do
	local id, n, payload = ARGV[i], ARGV[i+1], ARGV[i+2]
	if call('SETBIT', done, n, '1') == 0 then
		local d = counted and call('HGET', tries, id)
		if d then
			call('XADD', results, '*', n, payload, 'd', d)
		else
			call('XADD', results, '*', n, payload)
		end
		first, bytes = first + 1, bytes + #payload
	else
		repeated = repeated + 1
	end
	ids[#ids+1] = id
end
call('XACK', tasks, 'w', unpack(ids))
call('XDEL', tasks, unpack(ids))
if call('EXISTS', later) == 1 then call('ZREM', later, unpack(ids)) end
if counted then call('HDEL', tries, unpack(ids)) end
if first > 0 then
	call('HINCRBY', job, 'done', first)
	call('HINCRBY', job, 'bytes', bytes)
end
if ARGV[3] == '1' then repeated = 0 end
if repeated > 0 then call('HINCRBY', job, 'repeated', repeated) end
return {'ok'}
`)

// scriptHold is a worker's sign of life. ARGV: consumer, lease in ms, process and host, ids of the tasks that it holds. The answer
// names those of them that it has not any more.
var scriptHold = newScript(workerStart + `
local v, finished, seen, grace = unpack(call('HMGET', job, 'v', 'finished', 'seen', 'grace'))
if not v then return {'gone'} end
if finished then return {'finished'} end
spoken(seen, grace, ARGV[2])
call('HSET', workers, ARGV[1], string.format('%d ', now) .. ARGV[3])
call('HDEL', job, 'stopped')
call('ZADD', leases, now + ARGV[2], ARGV[1])
local has, gone = {}, {}
if #ARGV > 3 and call('EXISTS', tasks) == 1 then
	for _, p in ipairs(call('XPENDING', tasks, 'w', '-', '+', 100000, ARGV[1])) do has[p[1]] = true end
end
for i = 4, #ARGV do
	if not has[ARGV[i]] then gone[#gone+1] = ARGV[i] end
end
return {'ok', gone}
`)

// scriptBack hands tasks back. ARGV: consumer, wait in ms, ids; or, instead of ids, nothing and then "but" and the ids that the
// worker knows it has: whatever else the engine has given it, in an answer that was lost, goes back.
var scriptBack = newScript(scriptStart + `
if not call('HGET', job, 'v') or call('EXISTS', tasks) == 0 then return {'gone'} end
local ids = {}
if ARGV[3] == 'but' then
	local known = {}
	for i = 4, #ARGV do known[ARGV[i]] = true end
	for _, p in ipairs(call('XPENDING', tasks, 'w', '-', '+', 10000, ARGV[1])) do
		if not known[p[1]] then ids[#ids+1] = p[1] end
	end
else
	for i = 3, #ARGV do ids[#ids+1] = ARGV[i] end
end
local back = 0
for _, id in ipairs(ids) do
	local p = call('XPENDING', tasks, 'w', id, id, 1)[1]
	if p and p[2] == ARGV[1] then
		call('XCLAIM', tasks, 'w', '-', 0, id, 'JUSTID')
		call('HSET', tries, id, (call('HGET', tries, id) or 1) - 1)
		call('ZADD', later, now + ARGV[2], id)
		back = back + 1
	end
end
wake(back)
return {'ok', back}
`)

// scriptLeave forgets a worker that ends. ARGV: consumer, channel, why it stopped, if it was not asked to.
var scriptLeave = newScript(scriptStart + `
if ARGV[3] == '' then
	call('HDEL', job, 'stopped')
elseif call('HGET', job, 'v') then
	call('HSET', job, 'stopped', ARGV[3])
end
call('HDEL', workers, ARGV[1])
call('ZREM', waiting, ARGV[2])
return {'ok'}
`)

// scriptLook tells how a job is. ARGV: version.
var scriptLook = newScript(scriptStart + `
local h = call('HMGET', job, 'v', 'finished', 'done', 'poisoned', 'repeated', 'host', 'pid', 'until', 'stopped')
if not h[1] or h[2] then return {'gone'} end
if h[1] ~= ARGV[1] then return {'ok', h[1]} end
local pending, delayed = call('XPENDING', tasks, 'w'), call('ZCARD', later)
return {'ok', h[1], call('XLEN', tasks) - pending[1], pending[1] - delayed, delayed, call('XLEN', results), h[3] or 0, h[4] or 0,
	h[5] or 0, h[6] or '', h[7] or 0, (tonumber(h[8] or 0) > now) and 1 or 0, now, call('HGETALL', workers), pending[4] or {},
	call('ZCOUNT', leases, '(' .. now, '+inf') == 0 and h[9] or ''}
`)

// scriptRegister puts a job's name on the list of all, and takes off it what nobody has renewed for a month. KEYS: the list.
// ARGV: name, channel.
var scriptRegister = newScript(`
local now = redis.call('TIME')[1]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 2592000)
if redis.call('ZADD', KEYS[1], now, ARGV[1]) == 1 then redis.pcall('PUBLISH', ARGV[2], ARGV[1]) end
return {'ok'}
`)
