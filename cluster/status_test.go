package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/limits"
)

// account returns how the account of that name stands.
func account(t *testing.T, c *cluster.Cluster, name string) *cluster.AccountStatus {
	t.Helper()
	all, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range all.Accounts {
		if all.Accounts[i].Account == name {
			return &all.Accounts[i]
		}
	}
	return nil
}

// roles are what the members of an account do, the eldest first.
func roles(t *testing.T, c *cluster.Cluster, name string) string {
	a := account(t, c, name)
	if a == nil {
		return ""
	}
	all := make([]string, len(a.Members))
	for i, m := range a.Members {
		all[i] = m.Role
	}
	return strings.Join(all, " ")
}

func TestMembersComeAndGo(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		name := t.Name() + time.Now().String() // a real engine has it from the last time
		a := openAs(t, at, cluster.Config{Role: "run", Version: "v1.2.3"})
		leaveA := a.Join(name)
		eventually(t, "the first is a member", func() bool { return roles(t, a, name) == "run" })
		time.Sleep(5 * time.Millisecond) // of the engine's clock, by which the eldest comes first
		b := openAs(t, at, cluster.Config{Role: "serve"})
		leaveB, leaveB2 := b.Join(name), b.Join(name)
		eventually(t, "the second is a member", func() bool { return roles(t, a, name) == "run serve" })
		m := account(t, b, name).Members
		if m[0].ID != a.Member() || m[1].ID != b.Member() || m[0].Version != "v1.2.3" || m[0].PID == 0 || m[0].Host == "" || m[0].Since.IsZero() {
			t.Errorf("%+v", m)
		}
		b.Join(name + " too")
		eventually(t, "another account is joined, and this one is said again", func() bool { return roles(t, a, name+" too") == "serve" })
		if now := account(t, b, name).Members[1].Since; !now.Equal(m[1].Since) {
			t.Errorf("a member since %v is one since %v when it is heard again", m[1].Since, now)
		}
		leaveB()
		leaveB()
		time.Sleep(100 * time.Millisecond) // a heartbeat that leaves is sent at once
		if got := roles(t, a, name); got != "run serve" {
			t.Errorf("with one of two places given up: %q", got)
		}
		leaveB2()
		eventually(t, "the second has left", func() bool { return roles(t, a, name) == "run" })
		leaveB = b.Join(name)
		eventually(t, "the second is a member again", func() bool { return roles(t, a, name) == "run serve" })
		leaveA()
		eventually(t, "the first has left", func() bool { return roles(t, a, name) == "serve" })
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		eventually(t, "who closes leaves", func() bool { return roles(t, a, name) == "" })
		leaveB()
	})
}

func TestWhoLeavesAndClosesAtOnceIsGone(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		looker := openAs(t, at, cluster.Config{})
		for range 20 {
			c := openAs(t, at, cluster.Config{Role: "run"})
			leave := c.Join("account")
			eventually(t, "it is a member", func() bool { return roles(t, looker, "account") == "run" })
			leave()
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if got := roles(t, looker, "account"); got != "" {
				t.Fatalf("it has left, and there is %q", got)
			}
		}
	})
}

func TestMembersThatFallSilentAreForgotten(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		name := t.Name() + time.Now().String()
		c := openAs(t, at, cluster.Config{Role: "run"})
		seen, who := cluster.Key(name, "seen"), cluster.Key(name, "who")
		past, future := fmt.Sprint(time.Now().Add(-time.Second).UnixMilli()), fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())
		execute(t, at, "ZADD", seen, past, "silent", future, "busy")
		execute(t, at, "SET", cluster.Key(name, "name"), name)
		execute(t, at, "HSET", who, "silent", `1 {"role":"worker"}`, "busy", `2 {"role":"serve"}`)
		if got := roles(t, c, name); got != "serve" {
			t.Errorf("of one who is silent and one who speaks %q is listed", got)
		}
		c.Join(name)
		eventually(t, "there is one who joined, and one who speaks", func() bool { return roles(t, c, name) == "serve run" })
		for _, count := range [][]string{{"ZCARD", seen}, {"HLEN", who}} {
			if n, err := execute(t, at, count...).AsInt64(); n != 2 || err != nil {
				t.Errorf("%d members are kept, %v; want 2", n, err)
			}
		}
		execute(t, at, "DEL", seen, who)
		eventually(t, "who is forgotten comes back", func() bool { return roles(t, c, name) == "run" })
	})
}

func TestOnlyTheEnginesClockCounts(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		there := time.Now().Add(-5 * time.Hour).Truncate(time.Millisecond)
		at.Memory.SetTime(there)
		c := openAs(t, at, cluster.Config{Role: "run"})
		c.Join("account")
		eventually(t, "it is a member", func() bool { return roles(t, c, "account") == "run" })
		a := account(t, c, "account")
		if since := a.Members[0].Since; !since.Equal(there) || a.Members[0].SeenMS > 1000 {
			t.Errorf("a member since %v that was seen %d ms ago, by an engine whose clock says %v", since, a.Members[0].SeenMS, there)
		}
		if all, err := c.Status(t.Context()); err != nil || !all.At.Equal(there) {
			t.Errorf("status at %v, %v; want %v", all.At, err, there)
		}
	})
}

// us writes an instant as the ledger's script does.
func us(t time.Time) string { return fmt.Sprint(t.UnixMicro()) }

func TestTheStatusOfALedger(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		name := t.Name() + time.Now().String()
		c := openAs(t, at, cluster.Config{})
		do := func(words ...string) { execute(t, at, words...) }
		key := func(part string) string { return cluster.Key(name, part) }
		now := time.Now()
		do("SET", key("name"), name)
		do("HSET", key("account"), "format", "4", "spent", "7 900 0 0 7 0", "slots", "1 5 0 0 0 0", "b1", "40 "+us(now)+" 0.5 50 0 0 0")
		do("ZADD", key("leases"), us(now.Add(time.Hour)), "m:1", us(now.Add(-time.Second)), "m:2")
		do("HSET", key("lane:gpt:state"), "format", "4", "spent", "7 900 0 0 7 0", "slots", "3 8 9 1 0 0",
			"pause", "2 1 4 1 "+us(now.Add(90*time.Second))+" "+us(now), "b1", "-2.5 "+us(now.Add(-2*time.Second))+" 1 50 0 0 0", "b5", "100 "+us(now)+" 0.001 200 0 0 0")
		do("ZADD", key("lane:gpt:leases"), us(now.Add(time.Hour)), "m:1", us(now.Add(-time.Second)), "m:2")
		do("ZADD", key("lane:gpt:waiting"), us(now.Add(time.Hour)), "m", us(now.Add(time.Hour)), "n")
		do("HSET", key("lane:a:b:state"), "format", "4")
		a := account(t, c, name)
		if a == nil || len(a.Lanes) != 3 || a.Format != "" || len(a.Members) != 0 {
			t.Fatalf("%+v", a)
		}
		if all := a.Lanes[0]; all.Lane != "" || all.Slots != 5 || all.Open != 1 || len(all.Budgets) != 1 || all.Budgets[0].Pace != 30 {
			t.Errorf("all lanes: %+v", all)
		}
		if idle := a.Lanes[1]; idle.Lane != "a:b" || idle.Open != 0 || len(idle.Budgets) != 0 {
			t.Errorf("a lane with a colon: %+v", idle)
		}
		l := a.Lanes[2]
		if l.Lane != "gpt" || l.Slots != 8 || l.Open != 1 || l.Waiting != 2 || !l.Probing || l.Why != "rate_limit" || len(l.Budgets) != 2 {
			t.Fatalf("%+v", l)
		}
		if l.CooldownMS < 60_000 || l.CooldownMS > 90_001 {
			t.Errorf("cooldown of %d ms, want 90,000", l.CooldownMS)
		}
		rpm, rpd := l.Budgets[0], l.Budgets[1]
		if rpm.Dimension != "rpm" || rpm.Pace != 60 || rpm.Level < -0.6 || rpm.Cap != 50 || rpm.Spent != 7 {
			t.Errorf("%+v: -2.5 and 2 s of refill are -0.5", rpm)
		}
		if rpd.Dimension != "rpd" || math.Abs(rpd.Pace-86.4) > 1e-6 || rpd.Spent != 7 {
			t.Errorf("%+v", rpd)
		}
		do("HSET", key("lane:gpt:state"), "b1", "nan 0 1 1", "b2", "inf 0 1 1", "b5", "x")
		all, err := c.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(all); err != nil {
			t.Errorf("numbers that are none: %v", err)
		}
		do("HSET", key("account"), "format", "2")
		if a = account(t, c, name); a.Format != "2" || len(a.Lanes) != 0 {
			t.Errorf("keys of another version: %+v", a)
		}
		do("DEL", key("name"))
		if a = account(t, c, strings.TrimSuffix(key(""), ":")); a == nil {
			t.Error("an account whose name is not known is not listed")
		}
		do("DEL", key("account"), key("leases"), key("lane:gpt:state"), key("lane:gpt:leases"), key("lane:gpt:waiting"), key("lane:a:b:state"))
	})
}

func TestKeysThatSomebodyElseWroteHideNoOthers(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		m, c := at.Memory, open(t, at)
		k := collect(t, c, cluster.JobConfig{Name: "ours"})
		m.Set("{sluice:0123456789abcdef}:account", "of another type")
		m.Set(cluster.KeysOf("theirs")[0], "of another type")
		m.ZAdd("{sluice:jobs}", 1, "theirs")
		defer c.Join("an account")()
		eventually(t, "the account is there", func() bool { return account(t, c, "an account") != nil })
		if a := account(t, c, "{sluice:0123456789abcdef}"); a == nil || a.Format == "" {
			t.Errorf("what is not understood: %+v", a)
		}
		if s := status(t, c, "ours"); s.Version != 0 {
			t.Errorf("a job of ours: %+v", s)
		}
		w := work(t, c)
		add(t, k, 1)
		complete(t, w, next(t, w), "one")
		outcomes(t, k, 1)
	})
}

// Who runs into such a key is told what to do, rather than that the engine does not answer.
func TestKeysOfAnotherTypeAreSaidToBeSo(t *testing.T) {
	onEngines(t, func(t *testing.T, at *cluster.Site) {
		var log linesOf
		c := openAs(t, at, cluster.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		told := func(what string, err error) {
			t.Helper()
			wrong, ok := errors.AsType[*cluster.Error](err)
			if !ok || !wrong.Settings || !strings.Contains(err.Error(), "did not write") || !strings.Contains(wrong.Hint(), "{sluice") {
				t.Errorf("%s: %v", what, err)
			}
		}
		write := func(key string, words ...string) {
			execute(t, at, append([]string{words[0], key}, words[1:]...)...)
			t.Cleanup(func() { execute(t, at, "DEL", key) })
		}
		job := "odd " + t.Name()
		write(cluster.KeysOf(job)[0], "SET", "x")
		_, err := c.Collect(t.Context(), cluster.JobConfig{Name: job})
		told("a collector", err)
		w := work(t, c, job)
		_, err = w.Next(t.Context())
		told("a worker", err)
		l := c.Ledger(job+"'s account", cluster.LedgerConfig{})
		defer l.Close()
		damaged := c.Ledger(job+"'s other account", cluster.LedgerConfig{})
		defer damaged.Close()
		write(damaged.Account()+":lane:m:state", "HSET", "b1", "x")
		write(l.Account()+":account", "SET", "x")
		told("a ledger", l.Check(t.Context()))
		ledgers := []*cluster.Ledger{l, damaged}
		if at.Memory != nil { // whose scripts fail in other words
			ledgers = ledgers[:1]
		}
		for _, one := range ledgers {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if _, err := one.Take(ctx, limits.Asks{Lane: "m", Waiting: 1, Calls: []limits.Ask{{ID: 1}}}); err == nil {
				t.Error("it is granted")
			}
		}
		if text := log.String(); strings.Count(text, "did not write") != len(ledgers) || !strings.Contains(text, "hint=") {
			t.Errorf("at work:\n%s", text)
		}
	})
}
