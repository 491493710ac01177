package cluster

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/limits"
)

const (
	ledgerFormat = "4"                    // the version of the keys: dimensions in another number or order need another one
	lateSettle   = 25 * time.Millisecond  // what is to be said goes with the next ask, or so late by itself
	askDeadline  = 250 * time.Millisecond // an engine that does not answer within it is taken for gone
	oldestReply  = gate.Lease - 2*gate.Heartbeat
	lastWords    = 2 * time.Second // for what is still to be said when a Ledger closes
	mostOfAKind  = 500             // settlements, corrections or renewals in one message
	mostUnheard  = 1000            // corrections of budgets that are kept while the engine is gone: newer ones say more
	firstBackoff = 250 * time.Millisecond
	lastBackoff  = time.Second // less than a heartbeat: who comes back finds its slots, see HEARTBEAT in ledger_state.lua
)

// The script, in two halves.
var (
	//go:embed ledger_state.lua
	ledgerState string
	//go:embed ledger.lua
	ledgerWords string
)

// LedgerConfig configures a Ledger. The zero value is valid.
type LedgerConfig struct {
	// Fallback is the fraction of each limit, from 0 to 1, that all instances together use while Redis is unreachable. The instances
	// last seen have equal shares of this fraction. If Fallback is zero, requests wait until Redis responds.
	Fallback float64
}

// Ledger is a sluice.Ledger that stores token buckets, concurrency and cooldowns in Redis. All Schedulers with a Ledger of one
// account share its limits. Each Scheduler needs a separate Ledger, to be closed after the Scheduler. While Redis is
// unreachable, requests wait or use LedgerConfig.Fallback. A Ledger is safe for concurrent use.
type Ledger struct {
	at       *endpoint
	client   engine
	log      *slog.Logger
	foreign  bool // it was said that a key holds data of another program; of heal
	cfg      LedgerConfig
	member   string // names this Ledger among the members
	account  string // the beginning of all its keys
	script   *script
	patience time.Duration // with the engine

	ctx    context.Context // ends with the Ledger
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	lanes     map[string]*lane
	memory    memory                     // of all lanes together,
	recalled  uint64                     // as a reply to this message had it
	guarded   [limits.NumDimensions]bool // limits of all lanes together are configured
	sent      uint64                     // messages
	said      time.Time
	seen      standing
	tells     map[int]func(string, limits.LaneState, bool)
	watches   int
	gone      bool          // the engine does not answer
	lost      *atomic.Int32 // counts the Ledgers of the Cluster whose engine does not answer
	alone     *alone        // what grants meanwhile; nil: calls wait
	returning bool          // it grants nothing more
	turned    chan struct{} // closed, and made anew, when one of these changes for the better
	outages   int           // that the engine was told of
	closing   bool
}

// standing is a member's place among those of the account.
type standing struct {
	members int // 0 is not known
	rank    int // from 0
}

// Ledger returns a Ledger for an account, which is a set of limits at a provider. Programs that use the same account name share the
// limits. The name should identify the API key without containing the key. The Ledger contacts Redis at first use. To detect errors
// earlier, call Check.
func (c *Cluster) Ledger(account string, cfg LedgerConfig) *Ledger {
	l := &Ledger{at: &c.at, lost: &c.lost, client: c.client, log: c.cfg.Logger, cfg: cfg, patience: askDeadline,
		member: c.member + "." + rand.Text()[:8], account: hashTag(account),
		lanes: make(map[string]*lane), tells: make(map[int]func(string, limits.LaneState, bool)), turned: make(chan struct{})}
	// Each account has a script of its own: that the engine does not have it says that it was started anew, and may have
	// forgotten what it did last.
	head := fmt.Sprintf("local FORMAT, DIMENSIONS, DAILY = '%s', %d, %d\n", ledgerFormat,
		limits.NumDimensions-limits.Requests, limits.RequestsPerDay-limits.Requests+1)
	l.script = newRepeatable(head + ledgerState + ledgerWords + "-- " + l.account + "\n")
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.wg.Go(l.listen)
	return l
}

// Check returns an error if Redis rejects the request, does not respond within 2 s, or stores the account's data in another version.
func (l *Ledger) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	format, err := l.client.do(ctx, "HGET", l.account+":account", "format")
	switch {
	case err == nil && (format.none || format.text == ledgerFormat):
		return nil
	case isRefusal(err):
		return l.at.explain(ctx, err)
	case err != nil:
		return fmt.Errorf("shared limits: %w", err)
	}
	return fmt.Errorf("shared limits: the keys %s:* in Redis have version %s, but this program uses version %s: use one version of Sluice, "+
		"or delete the keys", l.account, format.text, ledgerFormat)
}

// Take charges the longest prefix of asks that fits the limits. Without Redis, Take waits or uses LedgerConfig.Fallback.
func (l *Ledger) Take(ctx context.Context, asks limits.Asks) (limits.Reply, error) {
	ln, err := l.lane(asks.Lane)
	if err != nil {
		return limits.Reply{}, err
	}
	for {
		if err := l.await(ctx, l.grantsLocked); err != nil {
			return limits.Reply{}, err
		}
		if r, ok := l.takeAlone(ln, &asks); ok {
			return r, nil
		}
		if err := ln.hold(ctx); err != nil {
			return limits.Reply{}, err
		}
		r, err := l.exchange(ctx, ln, &asks)
		ln.free()
		if err == nil || ctx.Err() != nil {
			return r, err
		}
	}
}

// Settle queues a settlement. The Ledger sends the settlement with the next Take, or after 25 ms.
func (l *Ledger) Settle(_ context.Context, s limits.Settlement) error {
	ln, err := l.lane(s.Lane)
	if err != nil {
		return err
	}
	l.mu.Lock()
	if !s.Open {
		delete(ln.open, s.ID)
	}
	done, awake := l.settleAloneLocked(ln, s)
	if !done {
		ln.pendLocked()
		ln.settlements = append(ln.settlements, settlement{s, time.Now()})
	}
	l.mu.Unlock()
	wake.Up(ln.pokes)
	if awake {
		l.tell(ln.name, limits.LaneState{}, true)
	}
	return nil
}

// Correct queues a correction of a token bucket, the concurrency or a cooldown. The Ledger sends corrections as in Settle.
func (l *Ledger) Correct(_ context.Context, c limits.Correction) error {
	ln, err := l.lane(c.Lane)
	if err != nil {
		return err
	}
	l.mu.Lock()
	ln.pendLocked()
	ln.corrections = append(ln.corrections, fix{c, time.Now()})
	if c.Limit > 0 {
		ln.guarded[c.Dimension] = true
	}
	l.mu.Unlock()
	wake.Up(ln.pokes)
	return nil
}

// Watch calls tell for each lane change that Redis reports outside a reply to Take, until stop is called.
func (l *Ledger) Watch(tell func(lane string, n limits.LaneState, awake bool)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches++
	id := l.watches
	l.tells[id] = tell
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.tells, id)
	}
}

// tell passes on news of a lane.
func (l *Ledger) tell(lane string, n limits.LaneState, awake bool) {
	l.mu.Lock()
	tells := make([]func(string, limits.LaneState, bool), 0, len(l.tells))
	for _, tell := range l.tells {
		tells = append(tells, tell)
	}
	l.mu.Unlock()
	for _, tell := range tells {
		tell(lane, n, awake)
	}
}

// Close sends queued settlements and corrections for at most 2 s, and leaves the account. Close may be called twice.
func (l *Ledger) Close() error {
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return nil
	}
	l.closing = true
	lanes := l.sortedLocked()
	l.mu.Unlock()
	l.cancel()
	l.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	for _, ln := range lanes {
		if err := l.insist(ctx, ln); err != nil {
			return fmt.Errorf("shared limits: the last update of lane %q was not sent: %w", ln.name, err)
		}
	}
	return l.leave(ctx, lanes)
}

// scriptQuit takes a member out of sets. KEYS: the sets. ARGV: the member.
var scriptQuit = newRepeatable(`for _, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[1]) end`)

// leave gives up the member's places, so that nobody leaves it anything.
func (l *Ledger) leave(ctx context.Context, lanes []*lane) error {
	if len(lanes) == 0 {
		return nil
	}
	keys := []string{l.account + ":members", l.account + ":ranks"}
	for _, ln := range lanes {
		keys = append(keys, ln.keys[keyWaiting:keyServed]...)
	}
	if _, err := l.client.eval(ctx, scriptQuit, keys, []string{l.member}); err != nil {
		return fmt.Errorf("shared limits: %w", err)
	}
	return nil
}

// insist says what is still to be said of a lane until it is heard.
func (l *Ledger) insist(ctx context.Context, ln *lane) error {
	for {
		err := l.flush(ctx, ln)
		if err == nil {
			return nil
		}
		if wake.In(ctx, lateSettle, nil) != nil {
			return err
		}
	}
}
