//go:build unix

package cli_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
)

// TestAWorkerThatIsStoppedAndGoesOn has one worker stand still until its tasks were given to another.
func TestAWorkerThatIsStoppedAndGoesOn(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel()
	c := newCrew(t, 400, 16)
	slow := c.hire("--rpm", "600", "--burst-seconds", "1")
	c.hire("--rpm", "1200", "--burst-seconds", "1")
	collects := c.start()
	signal := func(s os.Signal) {
		if err := slow.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	c.awaitLines(40)
	signal(syscall.SIGSTOP)
	time.Sleep(8 * time.Second) // more than the 6 s for which a worker is believed
	signal(syscall.SIGCONT)
	c.done(collects.wait())
	t.Logf("%d calls were made twice", c.twice())
}
