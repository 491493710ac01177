//go:build full

package docs_test

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// programs adds those that stand for others that documents name, and that a machine need not have.
func programs(all map[string]func()) map[string]func() {
	all["redis-server"] = redisServer
	all["your-program"] = func() { io.Copy(io.Discard, os.Stdin) }
	return all
}

// redisServer stands for Redis, whose imitation is in the process of the test.
func redisServer() {
	fmt.Println("Ready to accept connections")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
