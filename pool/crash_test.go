package pool_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/pool"
)

// childEnv tells a process of this test what to do.
const childEnv = "SLUICE_POOL_TEST_CHILD"

func TestMain(m *testing.M) {
	what, dir, isChild := strings.Cut(os.Getenv(childEnv), " ")
	if !isChild {
		before := runtime.NumGoroutine()
		suite.InMemory()
		code := m.Run()
		if code == 0 && !goroutinesEnd(before) {
			fmt.Fprintln(os.Stderr, "the tests left goroutines:")
			pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			code = 1
		}
		os.Exit(code)
	}
	if err := child(what, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// goroutinesEnd waits until no more than so many are left, and reports whether it came to that.
func goroutinesEnd(most int) bool {
	for range 6000 {
		if runtime.NumGoroutine() <= most {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

func child(what, dir string) error {
	s, err := pool.NewFileStore(dir)
	if err != nil {
		return err
	}
	if seed, err := strconv.ParseUint(what, 10, 64); err == nil {
		return hammer(s, seed, 60)
	}
	n := 0
	if c, err := s.Load("m"); err == nil {
		n, _ = strconv.Atoi(string(bytes.TrimRight(c.Data, ".")))
	}
	for { // until it is killed
		n++
		if err := s.Save("m", append(strconv.AppendInt(nil, int64(n), 10), bytes.Repeat([]byte("."), n%7*10_000)...)); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// start starts a child, which is killed with the test if it still runs.
func start(t *testing.T, what, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+what+" "+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

func TestAProcessThatIsKilledLeavesAWholeCheckpoint(t *testing.T) {
	dir := t.TempDir()
	s, _ := pool.NewFileStore(dir)
	random := rand.New(rand.NewPCG(1, 1))
	last := 0
	for range suite.Size(4, 25) {
		cmd, said := start(t, "save", dir)
		for range 1 + random.IntN(4) {
			if !said.Scan() {
				t.Fatal("it saves no more")
			}
			last, _ = strconv.Atoi(said.Text())
		}
		for end := time.Now().Add(time.Duration(random.IntN(3000)) * time.Microsecond); time.Now().Before(end); {
			runtime.Gosched() // it may be anywhere in a save
		}
		cmd.Process.Kill()
		for said.Scan() {
			last, _ = strconv.Atoi(said.Text())
		}
		cmd.Wait()
		c, err := s.Load("m")
		n, _ := strconv.Atoi(string(bytes.TrimRight(c.Data, ".")))
		if err != nil || c.Damage != nil || n < last || n > last+1 || len(c.Data) != len(strconv.Itoa(n))+n%7*10_000 {
			t.Fatalf("%d was saved, %d bytes of %d are there: %v, %v", last, len(c.Data), n, c.Damage, err)
		}
	}
}

func TestSeveralProcessesUseOneDirectory(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 3 {
		cmd, _ := start(t, strconv.Itoa(100+i), dir)
		wg.Go(func() {
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	s, err := pool.NewFileStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		wg.Go(func() {
			if err := hammer(s, uint64(i), 60); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// hammer saves, loads and deletes a few members' checkpoints, and fails where one is not as somebody saved it.
func hammer(s pool.Store, seed uint64, times int) error {
	random := rand.New(rand.NewPCG(seed, 1))
	for range times {
		member := fmt.Sprint("m", random.IntN(3))
		switch random.IntN(5) {
		case 0, 1:
			data := bytes.Repeat([]byte{byte(random.IntN(256))}, 1+random.IntN(20_000))
			if err := s.Save(member, append([]byte(member), data...)); err != nil {
				return err
			}
		case 2:
			if err := s.Delete(member); err != nil {
				return err
			}
		default:
			c, err := s.Load(member)
			switch {
			case errors.Is(err, pool.ErrNoCheckpoint):
				continue
			case err != nil:
				return err
			case c.Damage != nil && !errors.Is(c.Damage, os.ErrNotExist): // deleted while it was saved
				return c.Damage
			}
			data, ok := bytes.CutPrefix(c.Data, []byte(member))
			if !ok || len(data) == 0 || bytes.Count(data, data[:1]) != len(data) {
				return fmt.Errorf("member %s has %.40q", member, c.Data)
			}
		}
	}
	return nil
}
