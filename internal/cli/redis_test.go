package cli_test

import (
	"strings"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/rogpeppe/go-internal/testscript"
)

// redis NAME [key] [INFO...] serves an imitation of Redis and puts its address into the variable NAME. With key it wants that as
// its password. INFO is what it says of itself, such as redis_version:6.2.0.
func cmdRedis(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) >= 1, "redis NAME [key] [INFO...]")
	m := miniredis.NewMiniRedis()
	info := args[1:]
	if len(info) > 0 && info[0] == "key" {
		m.RequireAuth(sentinelKey)
		m.RequireUserAuth("sluice", sentinelKey)
		info = info[1:]
	}
	if len(info) == 0 {
		info = []string{"redis_version:7.2.4", "role:master", "maxmemory_policy:noeviction", "aof_enabled:1"}
	}
	ts.Check(m.Start())
	ts.Defer(m.Close)
	m.Server().SetPreHook(func(c *miniserver.Peer, cmd string, _ ...string) bool {
		if cmd == "INFO" {
			c.WriteBulk(strings.Join(info, "\r\n") + "\r\n")
		}
		return cmd == "INFO"
	})
	ts.Setenv(args[0], m.Addr())
}
