package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// supervisor tells systemd how a service does. Nil tells nobody.
type supervisor struct {
	conn net.Conn
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// newSupervisor tells the one that the environment names, and has it know from now on that the process lives if it wants to.
// Nil: there is none.
func newSupervisor() (*supervisor, error) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil, nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"}) // which knows what @ stands for
	if err != nil {
		return nil, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	n := &supervisor{conn: conn, stop: func() {}}
	if every := watchdogEvery(); every > 0 {
		ctx, cancel := context.WithCancel(context.Background())
		n.stop = cancel
		n.wg.Go(func() { n.live(ctx, every) })
	}
	return n, nil
}

// watchdogEvery is how often the supervisor is to hear of the process: twice in the time after which it ends it. 0: never.
func watchdogEvery() time.Duration {
	pid := os.Getenv("WATCHDOG_PID")
	us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || us <= 0 || us > int64(24*time.Hour/time.Microsecond) || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	return time.Duration(us) * time.Microsecond / 2
}

func (n *supervisor) live(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		n.say("WATCHDOG=1")
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// say sends a state. Nobody who does not hear it is waited for.
func (n *supervisor) say(state string) {
	_ = n.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = n.conn.Write([]byte(state))
}

// ready tells that the service serves, as also after it read its settings again.
func (n *supervisor) ready() {
	if n != nil {
		n.say("READY=1")
	}
}

// reloading tells that settings are read again.
func (n *supervisor) reloading() {
	var now unix.Timespec
	if n == nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return
	}
	n.say(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000))
}

// stopping tells that the service is to end.
func (n *supervisor) stopping() {
	if n != nil {
		n.say("STOPPING=1")
	}
}

func (n *supervisor) close() {
	if n != nil {
		n.stop()
		n.wg.Wait()
		n.conn.Close()
	}
}
