package recording

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Record runs commands, one after the other, by sh on a terminal of its own, and returns what is to be seen there. A command
// that fails is an error, unless it was interrupted.
func Record(ctx context.Context, config Config) (Recording, error) {
	rec := Recording{Width: config.Width, Height: config.Height, Title: config.Title}
	master, name, err := openTerminal(config.Width, config.Height)
	if err != nil {
		return rec, err
	}
	t := &tape{start: time.Now()}
	var reader sync.WaitGroup
	// While this end is open, the terminal outlives each command.
	slave, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		master.Close()
		return rec, err
	}
	reader.Go(func() { t.follow(master) })
	for _, c := range config.Commands {
		t.add([]byte("$ " + c.Text + "\r\n"))
		if err = config.run(ctx, c, master, slave); err != nil {
			err = fmt.Errorf("%s: %w", c.Text, err)
			break
		}
		time.Sleep(config.Between) // also for what is still on its way to the reader
	}
	slave.Close()
	reader.Wait()
	master.Close()
	rec.Parts = t.parts
	return rec, err
}

// run runs one command to its end.
func (config Config) run(ctx context.Context, c Command, master, slave *os.File) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+c.Text)
	cmd.Dir, cmd.Env = config.Dir, config.Env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	if c.InterruptAfter > 0 {
		interrupt := time.AfterFunc(c.InterruptAfter, func() { master.Write([]byte{3}) }) // as Ctrl-C does
		defer interrupt.Stop()
	}
	err := cmd.Wait()
	var ended *exec.ExitError
	if c.InterruptAfter > 0 && errors.As(err, &ended) && ended.ExitCode() == 130 {
		return nil
	}
	return err
}

// openTerminal makes a terminal, and returns our end of it and the name of the other.
func openTerminal(width, height int) (*os.File, string, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, "", err
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)})
	}
	if err != nil {
		master.Close()
		return nil, "", err
	}
	return master, "/dev/pts/" + strconv.Itoa(n), nil
}

// tape collects output with its times.
type tape struct {
	start time.Time

	mu    sync.Mutex
	parts []Part
	rest  []byte // of a character that is not whole yet
}

// follow adds what comes from a terminal, until its other end is closed.
func (t *tape) follow(terminal *os.File) {
	b := make([]byte, 64<<10)
	for {
		n, err := terminal.Read(b)
		t.add(b[:n])
		if err != nil {
			return
		}
	}
}

func (t *tape) add(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b = append(t.rest, b...)
	whole := len(b)
	for whole > 0 && len(b)-whole < utf8.UTFMax && !utf8.Valid(b[:whole]) {
		whole--
	}
	t.rest = append([]byte(nil), b[whole:]...)
	if whole > 0 {
		t.parts = append(t.parts, Part{time.Since(t.start).Round(time.Millisecond), strings.ToValidUTF8(string(b[:whole]), "?")})
	}
}
