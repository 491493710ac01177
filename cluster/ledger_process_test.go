//go:build unix

package cluster_test

import (
	"bufio"
	"crypto/rand"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/cluster"
)

func TestSlotsAreNotGrantedTwiceByAnEngineThatCameBackWithoutItsLastWords(t *testing.T) {
	t.Parallel()
	m, account := newServer(t), rand.Text()
	a, b := newCaller(t, cluster.SiteAt(m.url()), account), newCaller(t, cluster.SiteAt(m.url()), account)
	a.correct(slots(5, 0), told(sluice.Requests, 1000, 1000, 1000))
	a.until(2)
	m.do("SAVE")
	b.until(3)
	m.stop()
	time.Sleep(time.Second)
	m.start()
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		r, _ := a.take(1)
		if r.Granted > 0 {
			t.Fatalf("a sixth of five slots is granted: %+v", r)
		}
		time.Sleep(min(r.Wait, 50*time.Millisecond))
	}
	if r, _ := a.take(1); r.News.Open != 5 {
		t.Errorf("%d calls are open by the engine that came back: want 5", r.News.Open)
	}
}

// TestMemberProcess is a member in a process of its own, for other tests: it takes three slots and keeps them.
func TestMemberProcess(t *testing.T) {
	url, account, _ := strings.Cut(os.Getenv("SLUICE_TEST_HOLDER"), " ")
	if url == "" {
		t.Skip("this is a process of other tests")
	}
	a := newCaller(t, cluster.SiteAt(url), account)
	a.until(3)
	os.Stdout.WriteString("granted\n")
	bufio.NewReader(os.Stdin).ReadString('\n')
}

func TestAProcessThatIsStoppedLosesItsSlotsAndThatWakesHasThemAgain(t *testing.T) {
	t.Parallel()
	m, account := newServer(t), rand.Text()
	a := newCaller(t, cluster.SiteAt(m.url()), account)
	a.correct(slots(5, 0))
	_, first := a.take(1)
	other := exec.Command(os.Args[0], "-test.run=^TestMemberProcess$", "-test.v")
	other.Env = append(os.Environ(), "SLUICE_TEST_HOLDER="+m.url()+" "+account)
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Process.Kill()
	granted := false
	for lines := bufio.NewScanner(out); !granted && lines.Scan(); {
		granted = lines.Text() == "granted"
	}
	if !granted {
		t.Fatal("the other process has not got its slots")
	}
	if r, _ := a.take(2); r.Granted != 1 || r.News.Open != 5 {
		t.Fatalf("beside three slots of another: %+v", r)
	}
	if err := other.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if took := a.until(3); took < 2*time.Second {
		t.Errorf("the slots of a process that is stopped were granted after %v: a lease is longer", took)
	}
	if err := other.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the calls of a process that goes on to count", func() bool {
		r, _ := a.take(1)
		return r.News.Open == 8
	})
	a.settle(first)
	if r, _ := a.take(1); r.Granted != 0 {
		t.Errorf("of five slots seven are taken: %+v", r)
	}
	other.Process.Kill()
	other.Wait()
	eventually(t, "the slots of a process that was killed", func() bool {
		r, _ := a.take(1)
		return r.Granted == 1
	})
}
