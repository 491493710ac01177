package cluster

import (
	"context"
	"errors"
	"strings"
)

// What the user of an engine has to be allowed: ledgers and their members need the one, the ends of a batch the other. Each is a
// command and whole arguments of it, as engines do not look whether there are enough; K is a key.
const (
	ledgerCommands = `EVAL|x 1 K,EVALSHA|x 1 K,SUBSCRIBE|K,PUBLISH|K x,TIME|,SET|K x,DEL|K,EXPIRE|K 1,PEXPIRE|K 1,` +
		`HGET|K x,HGETALL|K,HSET|K x x,HSETNX|K x x,HDEL|K x,` +
		`ZADD|K 1 x,ZCARD|K,ZRANGE|K 0 1,ZRANGEBYSCORE|K 0 1,ZRANK|K x,ZREM|K x,ZREMRANGEBYSCORE|K 0 1,ZSCORE|K x`
	queueCommands = `HMGET|K x,HINCRBY|K x 1,EXISTS|K,UNLINK|K,SETBIT|K 1 1,GETBIT|K 1,ZPOPMIN|K,` +
		`XADD|K * x x,XDEL|K 1-1,XLEN|K,XRANGE|K - +,XREAD|STREAMS K 0,XREADGROUP|GROUP x x STREAMS K 0,XACK|K x 1-1,` +
		`XCLAIM|K x x 0 1-1,XPENDING|K x,XGROUP CREATE|K x 0,XGROUP DELCONSUMER|K x x`
)

// mayScript says which of the commands in ARGV its user may not run. Engines that cannot be asked say of none.
var mayScript = &script{text: `local out = {}
if redis.acl_check_cmd then
  for name, rest in string.gmatch(ARGV[1], '([^,|]+)|([^,]*)') do
    local words = {}
    for word in string.gmatch(name .. ' ' .. rest, '%S+') do words[#words + 1] = word == 'K' and KEYS[1] or word end
    local known, may = pcall(redis.acl_check_cmd, unpack(words))
    if known and not may then out[#out + 1] = name end
  end
end
return out`}

// may refuses a user that lacks some of the commands: else calls would wait for an engine that refuses them for ever.
func (c *Cluster) may(ctx context.Context, commands string) error {
	got, err := c.client.eval(ctx, mayScript, []string{c.probeKey()}, []string{commands})
	if lacks := got.texts(); err == nil && len(lacks) > 0 {
		return unfit(permit, "the Redis user has no permission to run %s", strings.Join(lacks, ", "))
	}
	return err
}

// probeKey keeps those that open at once from each other by the member's name.
func (c *Cluster) probeKey() string { return "{sluice}:probe:" + c.member }

// mayQueue refuses a user that may not do what a batch needs. An engine that does not say so now is waited for by what comes next.
func (c *Cluster) mayQueue(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout/5)
	defer cancel()
	if lacks, ok := errors.AsType[*Error](c.may(ctx, queueCommands)); ok {
		return c.at.explain(ctx, lacks)
	}
	return nil
}
