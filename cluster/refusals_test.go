package cluster_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/sluice-llm/sluice/cluster"
)

// TestWordsOfEveryEngineAreKnown has an engine say what others say: those of this machine are of one version.
func TestWordsOfEveryEngineAreKnown(t *testing.T) {
	for name, test := range map[string]struct {
		says, want, hint string
		settings         bool
	}{
		"wrong password": {"WRONGPASS invalid username-password pair or user is disabled.", "the user or the password is wrong", cluster.PasswordVariable, false},
		"no password":    {"NOAUTH Authentication required.", "needs a password", cluster.PasswordVariable, false},
		"commands":       {"NOPERM User mute has no permissions to run the 'eval' command", "the Redis user lacks permissions", "ACL SETUSER", true},
		"protected mode": {"DENIED Redis is running in protected mode", "clients on its own host", cluster.PasswordVariable, true},
		"a start":        {"LOADING Redis is loading the dataset in memory", "loading its data from disk", "in a moment", false},
		"a replica":      {"READONLY You can't write against a read only replica.", "read-only replica", "master_set=NAME", true},
		"memory":         {"OOM command not allowed when used memory > 'maxmemory'.", "the memory of the server is full", "maxmemory", false},
		"a sentinel":     {"ERR unknown command 'EVAL', with args beginning with: 'x'", "may be a sentinel", "master_set=NAME", true},
		"a database":     {"ERR DB index is out of range", "no database with this number", "number", true},
		"channels, Redis 7.0": {"NOPERM The user executing the script can't publish to the channel mentioned in the command",
			"the Redis user lacks permissions", "&{sluice*", true},
		"channels, Redis 7.2, Redis 8, Valkey": {"ERR ACL failure in script: No permissions to access a channel script: 2cbcc9532e44, on @user_script:2.",
			"the Redis user lacks permissions: ACL failure in script: No permissions to access a channel", "&{sluice*", true},
		"a script": {"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
			"an endless script", "SCRIPT KILL", false},
		"a password": {"ERR nothing is known of open-sesame-1", "the server responds: nothing is known of ***", "is Redis or Valkey", false},
		"clients":    {"ERR max number of clients reached", "maximum number of clients", "maxclients", false},
	} {
		t.Run(name, func(t *testing.T) {
			engine := miniredis.RunT(t)
			engine.SetError(test.says)
			text, hint, settings := refused(t, cluster.Config{URL: "redis://:open-sesame-1@" + engine.Addr()})
			if !strings.Contains(text, test.want) || strings.Contains(text, "@user_script") || !strings.Contains(hint, test.hint) || settings != test.settings {
				t.Errorf("%s (hint: %s, settings %v), want %q, %q, %v", text, hint, settings, test.want, test.hint, test.settings)
			}
		})
	}
}

// TestABatchOutlivesWhatPassesAndSaysWhatToDo has an engine refuse everything for a while.
func TestABatchOutlivesWhatPassesAndSaysWhatToDo(t *testing.T) {
	for says, want := range map[string][]string{
		"OOM command not allowed when used memory > 'maxmemory'.":                  {"the memory of the server is full", "raise maxmemory on the server"},
		"max number of clients reached":                                            {"maximum number of clients", "raise maxclients"},
		"MISCONF Errors writing to the AOF file: No space left on device":          {"it cannot save to disk", "free disk space"},
		"BUSY Redis is busy running a script.":                                     {"an endless script", "SCRIPT KILL"},
		"TRYAGAIN Multiple keys request during rehashing of slot":                  {"Redis does not respond: waiting", "TRYAGAIN"},
		"UNBLOCKED force unblock from blocking operation, instance state changed.": {"Redis does not respond: waiting", "UNBLOCKED"},
	} {
		t.Run(strings.Fields(says)[0], func(t *testing.T) {
			inMemory(t, func(t *testing.T, at *cluster.Site) {
				var log linesOf
				c := openAs(t, at, cluster.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				k, w := collect(t, c, cluster.JobConfig{Name: "job"}), work(t, c, "job")
				at.Refuse(func(string) string { return says })
				eventually(t, "it is said", func() bool { return strings.Contains(log.String(), want[0]) && strings.Contains(log.String(), want[1]) })
				at.Refuse(nil)
				add(t, k, 1)
				complete(t, w, next(t, w), "one")
				if got := outcomes(t, k, 1); string(got[1].Payload) != "one" {
					t.Errorf("got %v", got)
				}
			})
		})
	}
}

// TestAnEngineThatOnlyLetsReadIsSaidToBeBackWhenItIs has one refuse what writes, as with a full memory, and answer the rest.
func TestAnEngineThatOnlyLetsReadIsSaidToBeBackWhenItIs(t *testing.T) {
	inMemory(t, func(t *testing.T, at *cluster.Site) {
		var log linesOf
		c := openAs(t, at, cluster.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		collect(t, c, cluster.JobConfig{Name: "job"})
		at.Refuse(func(command string) string {
			if command == "EVAL" {
				return "OOM command not allowed when used memory > 'maxmemory'."
			}
			return ""
		})
		time.Sleep(30 * time.Second) // results are read meanwhile
		if text := log.String(); strings.Contains(text, "answers again") || strings.Count(text, "the memory of the server is full") != 1 {
			t.Errorf("while it lets nobody write:\n%s", text)
		}
		at.Refuse(nil)
		eventually(t, "it is said to be over", func() bool { return strings.Contains(log.String(), "Redis responds again") })
	})
}

// linesOf is a log that is read while it is written.
type linesOf struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *linesOf) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *linesOf) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
