package cluster

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
)

// Waits between attempts at an engine that does not answer, and the longest attempt: in callTimeout the largest batch of payloads
// passes a line of 10 Mbit/s.
const (
	firstRetry  = 50 * time.Millisecond
	lastRetry   = 2 * time.Second
	callTimeout = 10 * time.Second
)

// link sends the scripts and commands of a Collector or Worker to Redis, and repeats each until it is answered.
type link struct {
	at     *endpoint
	client engine
	closed *atomic.Bool // the client, by who opened it
	log    *slog.Logger

	mu      sync.Mutex
	down    time.Time // since when the engine has not answered, or refused; zero while it does as it is asked
	refuses bool      // it answers, and refuses what writes: that it lets read is no end of that
}

// do runs a script, and repeats it until it is answered or ctx ends. It calls args for each attempt. An answer that a further attempt
// cannot change is an error.
func (l *link) do(
	ctx context.Context, script *script, keys []string, args func() []string,
) (answer []reply, err error) {
	err = l.insist(ctx, true, func(ctx context.Context) error {
		got, err := l.client.eval(ctx, script, keys, args())
		answer = got.list
		return err
	})
	return answer, err
}

// persist repeats a read until it is answered or ctx ends.
func (l *link) persist(ctx context.Context, ask func(context.Context) error) error {
	return l.insist(ctx, false, ask)
}

func (l *link) insist(ctx context.Context, writes bool, ask func(context.Context) error) error {
	for wait := (wake.Backoff{Min: firstRetry, Max: lastRetry}); ; {
		attempt, cancel := context.WithTimeout(ctx, callTimeout)
		err := ask(attempt)
		cancel()
		if err == nil {
			l.up(writes)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if l.final(err) {
			return l.at.refused(ctx, err)
		}
		l.lost(ctx, err)
		if err := wake.In(ctx, wait.Next(), nil); err != nil {
			return err
		}
	}
}

// lost notes that Redis does not answer, or refuses to write. It logs the first of several failures.
func (l *link) lost(ctx context.Context, err error) {
	answer, answers := errors.AsType[redisError](err)
	refuses := answers && refusalOf(answer.Error()) != nil
	l.mu.Lock()
	first := l.down.IsZero()
	if first {
		l.down = time.Now()
	}
	l.refuses = refuses
	l.mu.Unlock()
	if !first {
		return
	}
	if refuses { // somebody may have to do something about it
		if refused, ok := errors.AsType[*Error](l.at.explain(ctx, err)); ok {
			l.log.Warn("Redis refuses commands: retrying", "error", refused.Err, "hint", refused.hint)
			return
		}
	}
	l.log.Warn("Redis does not respond: waiting", "error", err)
}

func (l *link) up(writes bool) {
	l.mu.Lock()
	since := l.down
	if l.refuses && !writes {
		since = time.Time{}
	} else {
		l.down, l.refuses = time.Time{}, false
	}
	l.mu.Unlock()
	if !since.IsZero() { // at the level of the warning that it ends: who reads the one waits for the other
		l.log.Warn("Redis responds again", "after", time.Since(since).Round(time.Millisecond))
	}
}

// final reports whether a further attempt cannot help. Errors of the network pass, and so do the errors of a Redis that starts, fails
// over, is full or busy.
func (l *link) final(err error) bool {
	if errors.Is(err, errClosing) { // it closes connections, too, when sentinels or a cluster name another server
		return l.closed.Load()
	}
	answer, ok := errors.AsType[redisError](err)
	if !ok {
		return false
	}
	word, _, _ := strings.Cut(answer.Error(), " ")
	switch word {
	case "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "OOM", "MISCONF", "NOREPLICAS",
		"UNBLOCKED", "NOSCRIPT", "NOGROUP":
		return false
	}
	if strings.HasPrefix(answer.Error(), "max number of clients") { // others leave, as after a restart, when all come at once
		return false
	}
	// A script's error has the word of the command that failed in it further on.
	return !strings.Contains(answer.Error(), "OOM command not allowed") && !strings.Contains(answer.Error(), "READONLY ") &&
		!strings.Contains(answer.Error(), "NOGROUP ") && !strings.Contains(answer.Error(), "MISCONF ")
}

// keysOf are the keys of a job, in the order of queueKeys.
func keysOf(name string) []string {
	keys := make([]string, len(queueKeys))
	for i, key := range queueKeys {
		keys[i] = hashTag(name) + ":" + key
	}
	return keys
}

// What all jobs of an engine have together.
const (
	registry    = "{sluice:jobs}"       // lists their names
	jobsChannel = "{sluice:jobs}:new"   // tells of new ones
	wakeChannel = "{sluice:jobs}:wake:" // and a worker's name: wakes it
)
