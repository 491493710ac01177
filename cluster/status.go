package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// Status is the state of all accounts and jobs in Redis.
type Status struct {
	URL      string          `json:"url"`      // URL of Redis without password.
	At       time.Time       `json:"at"`       // Time of the data or event. By the clock of Redis.
	Engine   Engine          `json:"engine"`   // Redis itself.
	Accounts []AccountStatus `json:"accounts"` // Accounts that use this Redis.
	Jobs     []JobStatus     `json:"jobs"`     // Runs with `--distribute`.
}

// AccountStatus is the state of an account.
type AccountStatus struct {
	Account string       `json:"account"`          // Name of the account. The prefix of its keys if the name is unknown.
	Members []Member     `json:"members"`          // Instances that use the account. The oldest first.
	Lanes   []LaneStatus `json:"lanes"`            // State by lane.
	Format  string       `json:"format,omitempty"` // Version of the account's keys, if unsupported. Then no lanes are known.
}

// LaneStatus is the state of a lane, for all instances together.
type LaneStatus struct {
	Lane       string         `json:"lane"`                   // Model; empty means all models together.
	Open       int            `json:"in_flight"`              // Requests in flight of all instances.
	Slots      int            `json:"concurrency"`            // Allowed concurrency. 0 is unlimited.
	Waiting    int            `json:"waiting"`                // Waiting instances.
	CooldownMS int64          `json:"cooldown_ms,omitempty"`  // Remaining cooldown.
	Why        string         `json:"cooldown_why,omitempty"` // Cause of the cooldown.
	Probing    bool           `json:"probing,omitempty"`      // Probe requests check whether a cooldown ended.
	Budgets    []BudgetStatus `json:"limits"`                 // State by limit.
}

// BudgetStatus is the state of one token bucket of a lane.
type BudgetStatus struct {
	Dimension string  `json:"dimension"` // Name of the limit, such as `rpm`.
	Pace      float64 `json:"pace"`      // Refill rate of the token bucket per minute or day.
	Level     float64 `json:"level"`     // Level of the token bucket; negative after too much use.
	Cap       float64 `json:"cap"`       // Size of the token bucket.
	Spent     float64 `json:"spent"`     // Amount used by all instances.
}

// lookScript reads an account at one instant. KEYS: those of its members, its record and leases; then record, leases and members
// that wait of each lane.
var lookScript = newScript(`local t = redis.call('TIME')
local us = t[1] * 1000000 + t[2]
local function live(key) return redis.call('ZCOUNT', key, string.format('(%.0f', us), '+inf') end
local out = {string.format('%.0f', us), redis.call('GET', KEYS[3]) or '', redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES'),
  redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[4]), live(KEYS[5])}
for i = 6, #KEYS, 3 do
  out[#out + 1] = redis.call('HGETALL', KEYS[i])
  out[#out + 1] = live(KEYS[i + 1])
  out[#out + 1] = live(KEYS[i + 2])
end
return out`)

// Status returns the state of all accounts and jobs in Redis. Status scans all keys without blocking Redis. While Redis is
// unreachable, Status waits until ctx ends.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	all := Status{URL: c.String(), Engine: c.engine, Accounts: []AccountStatus{}}
	found, err := c.find(ctx)
	if err != nil {
		return all, c.at.explain(ctx, err)
	}
	for _, tag := range slices.Sorted(maps.Keys(found)) {
		lanes := found[tag]
		slices.Sort(lanes)
		keys := []string{tag + keySeen, tag + keyWho, tag + keyName, tag + "account", tag + "leases"}
		for _, lane := range lanes {
			keys = append(keys, tag+"lane:"+lane+":state", tag+"lane:"+lane+":leases", tag+"lane:"+lane+":waiting")
		}
		got, err := c.client.eval(ctx, lookScript, keys, nil)
		if isForeign(err) {
			all.Accounts = append(all.Accounts, AccountStatus{Account: strings.TrimSuffix(tag, ":"), Members: []Member{}, Lanes: []LaneStatus{}, Format: "?"})
			continue
		}
		if err != nil {
			return all, c.at.explain(ctx, err)
		}
		one, at := readAccount(got.list, lanes)
		one.Account = cmp.Or(one.Account, strings.TrimSuffix(tag, ":"))
		all.At = at
		all.Accounts = append(all.Accounts, one)
	}
	slices.SortFunc(all.Accounts, func(a, b AccountStatus) int { return cmp.Compare(a.Account, b.Account) })
	if all.At.IsZero() {
		if all.At, err = c.now(ctx); err != nil {
			return all, err
		}
	}
	all.Jobs, err = c.Jobs(ctx)
	return all, err
}

// keyPrefix begins the name of every key that Sluice writes.
const keyPrefix = "{sluice"

// errForeign is that a key is of another type than Sluice gives it, or holds what a script can make nothing of.
var errForeign = errors.New("a key whose name begins with " + keyPrefix + " contains damaged data, or data that Sluice did not write")

// isForeign reports whether it is that: then it is no reason to tell nothing of the others.
func isForeign(err error) bool {
	return errors.Is(err, errForeign) || isRefusal(err) && (strings.Contains(err.Error(), "WRONGTYPE") || strings.Contains(err.Error(), ": attempt to "))
}

// now is the time of the engine; in a cluster, of one of its nodes.
func (c *Cluster) now(ctx context.Context) (time.Time, error) {
	got, err := c.client.do(ctx, "TIME")
	if err != nil || len(got.list) != 2 {
		return time.Time{}, c.at.explain(ctx, cmp.Or(err, errors.New("unexpected response to TIME")))
	}
	return time.Unix(got.list[0].number(), got.list[1].number()*1000).UTC(), nil
}

// find returns the names of lanes by the beginnings of their accounts' keys.
func (c *Cluster) find(ctx context.Context) (map[string][]string, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	found := make(map[string][]string)
	var errs []error
	servers := c.servers()
	for _, node := range servers {
		wg.Go(func() {
			err := scan(ctx, node, func(key string) {
				tag, part, _ := strings.Cut(key, "}:")
				tag += "}:"
				mu.Lock()
				defer mu.Unlock()
				lane, isLane := strings.CutPrefix(part, "lane:")
				lane, isState := strings.CutSuffix(lane, ":state")
				switch {
				case isLane && isState && !slices.Contains(found[tag], lane): // a replica, or a repetition of SCAN, has it again
					found[tag] = append(found[tag], lane)
				case part == keySeen || part == "account":
					found[tag] = slices.Clip(found[tag])
				}
			})
			if err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(errs) < len(servers) && len(errs) > 0 {
		c.cfg.Logger.Warn(fmt.Sprintf("%d of the %d nodes of %s do not respond: the status omits their data", len(errs), len(servers), c))
		return found, nil
	}
	return found, errors.Join(errs...)
}

const (
	scanStep    = 1000            // keys that the engine looks at in one go: some 0.1 ms of its time
	stepTimeout = 3 * time.Second // for that
)

// scan calls each with the keys of Sluice that a server has; with some of them twice.
func scan(ctx context.Context, node engine, each func(key string)) error {
	for cursor := "0"; ; {
		one, cancel := context.WithTimeout(ctx, stepTimeout)
		got, err := node.do(one, "SCAN", cursor, "MATCH", "{sluice:*}:*", "COUNT", strconv.Itoa(scanStep))
		cancel()
		if err != nil {
			return err
		}
		if len(got.list) != 2 {
			return errors.New("unexpected response to SCAN")
		}
		for _, key := range got.list[1].texts() {
			each(key)
		}
		if cursor = got.list[0].text; cursor == "0" {
			return nil
		}
	}
}

// readAccount reads what lookScript returned.
func readAccount(got []reply, lanes []string) (AccountStatus, time.Time) {
	a := AccountStatus{Lanes: []LaneStatus{}}
	us := float64(got[0].number())
	at := time.UnixMicro(int64(us)).UTC()
	a.Account = got[1].text
	seen := got[2].texts()
	who := got[3].pairs()
	a.Members = readMembers(seen, who, at)
	record := got[4].pairs()
	if format := record["format"]; format != "" && format != ledgerFormat {
		a.Format = format
		return a, at
	}
	if l := readLane(record, us); len(l.Budgets) > 0 || l.Slots > 0 {
		l.Open = int(got[5].number())
		a.Lanes = append(a.Lanes, l)
	}
	for i, lane := range lanes {
		record := got[6+3*i].pairs()
		l := readLane(record, us)
		l.Lane, l.Open, l.Waiting = lane, int(got[7+3*i].number()), int(got[8+3*i].number())
		a.Lanes = append(a.Lanes, l)
	}
	return a, at
}

// readMembers reads pairs of an id and until when it is believed, in ms.
func readMembers(seen []string, who map[string]string, now time.Time) []Member {
	all := []Member{}
	for i := 0; i+1 < len(seen); i += 2 {
		until, _ := strconv.ParseFloat(seen[i+1], 64)
		since, says, _ := strings.Cut(who[seen[i]], " ")
		came, _ := strconv.ParseInt(since, 10, 64)
		left := time.UnixMilli(int64(until)).Sub(now)
		m := Member{}
		if left <= 0 || json.Unmarshal([]byte(says), &m) != nil {
			continue
		}
		m.ID, m.Since, m.SeenMS = seen[i], time.UnixMilli(came).UTC(), max(0, (memberFor-left).Milliseconds())
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	return all
}

// readLane reads the record of a lane as it is at an instant, in µs.
func readLane(record map[string]string, now float64) LaneStatus {
	l := LaneStatus{Budgets: []BudgetStatus{}}
	pause, spent := readNumbers(record["pause"]), readNumbers(record["spent"])
	l.Slots, l.Probing = int(readNumbers(record["slots"])[1]), pause[1] == 1
	if left := pause[4] - now; left > 0 {
		l.CooldownMS, l.Why = int64(math.Ceil(left/1000)), sluice.Kind(pause[3]).String()
	}
	for i := range spent {
		b := readBudget(record["b"+strconv.Itoa(i+1)], now)
		if b.rate == 0 {
			continue
		}
		d := limits.Requests + limits.Dimension(i)
		pace := b.rate * d.Window().Seconds()
		l.Budgets = append(l.Budgets, BudgetStatus{Dimension: d.String(), Pace: pace, Level: b.level, Cap: b.cap, Spent: spent[i]})
	}
	return l
}
