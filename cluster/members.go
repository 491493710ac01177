package cluster

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/internal/wake"
)

const (
	beatEvery   = gate.Heartbeat // a member says so often that it is there,
	memberFor   = gate.Lease     // and is believed for so long: a beat that is lost, and one that is late, do not matter
	beatTimeout = time.Second    // a beat that takes longer is given up: the next one is soon
	nameFor     = 48 * time.Hour // after the last beat, an account's name is kept as long as its quota: KEPT in ledger_state.lua
)

// Member is an instance that shares the limits of an account.
type Member struct {
	ID      string    `json:"id"`      // ID of the instance.
	Role    string    `json:"role"`    // `run`, `serve` or `worker`.
	Host    string    `json:"host"`    // Host name.
	PID     int       `json:"pid"`     // Process ID.
	Version string    `json:"version"` // Version of Sluice.
	Since   time.Time `json:"since"`   // Start of the instance. By the clock of Redis.
	SeenMS  int64     `json:"seen_ms"` // Time since the last heartbeat.
}

// The keys of an account's members. Beside them stand those of its ledger.
const (
	keySeen = "seen" // until when each is believed, in ms
	keyWho  = "who"  // what each says of itself, behind the instant when it came, in ms
	keyName = "name" // what the account is called
)

// beatScript enters a member, or keeps it, and takes out those that are gone.
// ARGV: id, what it says of itself, how long it is believed, the account's name, how long that is known; times are in ms.
var beatScript = newRepeatable(`local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do
  if id ~= ARGV[1] then
    redis.call('ZREM', KEYS[1], id)
    redis.call('HDEL', KEYS[2], id)
  end
end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('HSETNX', KEYS[2], ARGV[1], string.format('%.0f', now) .. ' ' .. ARGV[2])
redis.call('SET', KEYS[3], ARGV[4], 'PX', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return redis.call('PEXPIRE', KEYS[2], ARGV[5])`)

// leaveScript takes a member out. ARGV: id.
var leaveScript = newRepeatable(`redis.call('ZREM', KEYS[1], ARGV[1])
return redis.call('HDEL', KEYS[2], ARGV[1])`)

// membership keeps a process among the members of accounts, for whoever looks at them: no call waits for it, and the ledgers
// count their members by themselves.
type membership struct {
	c      *Cluster
	says   string // what it says of itself
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{} // has room for one

	mu       sync.Mutex
	accounts map[string]int  // and how often each was joined
	left     map[string]bool // accounts that it is to be taken out of
}

// newMembership begins to beat.
func newMembership(c *Cluster) *membership {
	host, _ := os.Hostname() // one without a name has none to show
	says, _ := json.Marshal(Member{Role: c.cfg.Role, Host: host, PID: os.Getpid(), Version: c.cfg.Version})
	ctx, cancel := context.WithCancel(context.Background())
	m := &membership{
		c: c, says: string(says), cancel: cancel, wake: make(chan struct{}, 1), accounts: make(map[string]int), left: make(map[string]bool),
	}
	m.wg.Go(func() { m.run(ctx) })
	return m
}

// close leaves all accounts.
func (m *membership) close() {
	m.cancel()
	m.wg.Wait()
	m.mu.Lock()
	for account := range m.accounts {
		m.left[account] = true
	}
	clear(m.accounts)
	m.mu.Unlock()
	m.say(context.Background())
}

// Join lists this instance in AccountStatus.Members of an account until leave is called. Join does not wait for Redis.
func (c *Cluster) Join(account string) (leave func()) {
	m := c.here
	m.mu.Lock()
	m.accounts[account]++
	delete(m.left, account)
	m.mu.Unlock()
	wake.Up(m.wake)
	return sync.OnceFunc(func() {
		m.mu.Lock()
		if m.accounts[account]--; m.accounts[account] <= 0 {
			delete(m.accounts, account)
			m.left[account] = true
		}
		m.mu.Unlock()
		wake.Up(m.wake)
	})
}

// run says in time that this process is there.
func (m *membership) run(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-tick.C:
		}
		m.say(ctx)
	}
}

// say says once which accounts this process is a member of, and of which no longer. What cannot be said now is said again soon,
// and if that is never, the others find out. That the engine is gone its ledger tells.
func (m *membership) say(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	m.mu.Lock()
	left, joined := slices.Collect(maps.Keys(m.left)), slices.Collect(maps.Keys(m.accounts))
	m.mu.Unlock()
	id := m.c.member
	var wg sync.WaitGroup
	for _, account := range left {
		wg.Go(func() {
			if _, err := m.c.client.eval(ctx, leaveScript, memberKeys(account), []string{id}); err == nil {
				m.mu.Lock()
				delete(m.left, account)
				m.mu.Unlock()
			}
		})
	}
	for _, account := range joined {
		wg.Go(func() {
			_, _ = m.c.client.eval(ctx, beatScript, memberKeys(account), []string{id, m.says, milliseconds(memberFor), account, milliseconds(nameFor)})
		})
	}
	wg.Wait()
}

// memberKeys are the keys of an account's members.
func memberKeys(account string) []string {
	return []string{hashTag(account) + ":" + keySeen, hashTag(account) + ":" + keyWho, hashTag(account) + ":" + keyName}
}

func milliseconds(d time.Duration) string { return itoa(d.Milliseconds()) }
