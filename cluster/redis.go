package cluster

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// engine runs scripts and commands on Redis. Its errors are a redisError, errClosing, errNoSlot, or an error of the network or of ctx.
type engine interface {
	// eval runs a script.
	eval(ctx context.Context, s *script, keys, args []string) (reply, error)

	// do runs a command that may be repeated. In a cluster its first argument is the key.
	do(ctx context.Context, command ...string) (reply, error)

	// read returns entries of a stream after an id, at most a page of them. It waits for the first, for a second at most.
	read(ctx context.Context, stream, after string) ([]reply, error)

	// listen passes on messages until ctx ends or the connection is lost. It calls ready when Redis has subscribed it.
	listen(ctx context.Context, channels []string, ready func(), heard func(channel, message string)) error
}

// connection is an engine that Open has connected to.
type connection interface {
	engine
	mode() string    // standalone, sentinel or cluster
	nodes() []engine // the servers of a cluster
	close()
}

// script is a Lua script. Redis runs it by its hash, and is sent the text if it does not have the script. Without a hash the text is
// always sent, and without a text a missing script is an error.
type script struct {
	text, sha  string
	repeatable bool // a lost connection is no reason not to send it again
}

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}

// newRepeatable returns a script that has the same effect when it runs twice.
func newRepeatable(text string) *script {
	s := newScript(text)
	s.repeatable = true
	return s
}

// redisError is an error that Redis answered, without the word ERR.
type redisError string

func (e redisError) Error() string { return string(e) }

var (
	errClosing = errors.New("the connection is being closed")
	errNoSlot  = errors.New("no server of the cluster has the key")
)

// reply is a response of Redis: a text, the decimal text of a number, a list, or nothing.
type reply struct {
	none bool
	text string
	list []reply
}

// texts returns the list as texts.
func (r reply) texts() []string {
	out := make([]string, len(r.list))
	for i, m := range r.list {
		out[i] = m.text
	}
	return out
}

// pairs returns a list of names and values as a map.
func (r reply) pairs() map[string]string {
	out := make(map[string]string, len(r.list)/2)
	for i := 0; i+1 < len(r.list); i += 2 {
		out[r.list[i].text] = r.list[i+1].text
	}
	return out
}

// number returns the text as a number; 0 if it is not one.
func (r reply) number() int64 {
	n, _ := strconv.ParseInt(r.text, 10, 64)
	return n
}

// asString returns a payload as an argument, without a copy: payloads do not change.
func asString(b []byte) string { return rueidis.BinaryString(b) }

// redis is the connection by way of rueidis.
type redis struct{ client rueidis.Client }

func (r redis) eval(ctx context.Context, s *script, keys, args []string) (reply, error) {
	b := r.client.B()
	run := func(cmd rueidis.Completed) rueidis.RedisResult {
		if s.repeatable {
			cmd = cmd.ToRetryable()
		}
		return r.client.Do(ctx, cmd)
	}
	if s.sha != "" {
		result := run(b.Evalsha().Sha1(s.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
		if missing, ok := rueidis.IsRedisErr(result.Error()); !ok || !missing.IsNoScript() || s.text == "" {
			return parseResult(result)
		}
	}
	return parseResult(run(b.Eval().Script(s.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()))
}

func (r redis) do(ctx context.Context, command ...string) (reply, error) {
	cmd := r.client.B().Arbitrary(command[0])
	if len(command) > 1 {
		cmd = cmd.Keys(command[1]).Args(command[2:]...)
	}
	return parseResult(r.client.Do(ctx, cmd.Build().ToRetryable()))
}

// read waits on a connection of its own, which is closed to end the wait.
func (r redis) read(ctx context.Context, stream, after string) ([]reply, error) {
	own, done := r.client.Dedicate()
	defer done()
	defer context.AfterFunc(ctx, own.Close)()
	got, err := parseResult(own.Do(ctx, own.B().Xread().Count(page).Block(time.Second.Milliseconds()).Streams().Key(stream).Id(after).Build()))
	if len(got.list) == 1 { // protocol 2 has a list of streams, protocol 3 a map
		got = got.list[0]
	}
	if len(got.list) < 2 {
		return nil, err
	}
	return got.list[1].list, err
}

// listen has a connection of its own: some engines answer nothing else on one that listens.
func (r redis) listen(ctx context.Context, channels []string, ready func(), heard func(channel, message string)) error {
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { ready() })
	return translate(r.client.Dedicated(func(c rueidis.DedicatedClient) error {
		return c.Receive(ctx, c.B().Subscribe().Channel(channels...).Build(), func(m rueidis.PubSubMessage) { heard(m.Channel, m.Message) })
	}))
}

func (r redis) mode() string { return string(r.client.Mode()) }

func (r redis) nodes() (all []engine) {
	for _, node := range r.client.Nodes() {
		all = append(all, redis{node})
	}
	return all
}

func (r redis) close() { r.client.Close() }

// translate returns an error of rueidis as one of ours.
func translate(err error) error {
	switch {
	case isA[*rueidis.RedisError](err):
		return redisError(err.Error())
	case errors.Is(err, rueidis.ErrClosing):
		return errClosing
	case errors.Is(err, rueidis.ErrNoSlot):
		return errNoSlot
	}
	return err
}

func parseResult(r rueidis.RedisResult) (reply, error) {
	m, err := r.ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		return reply{}, translate(err)
	}
	return parseMessage(&m), nil
}

func parseMessage(m *rueidis.RedisMessage) reply {
	switch {
	case m.IsNil():
		return reply{none: true}
	case m.IsInt64():
		n, _ := m.AsInt64()
		return reply{text: itoa(n)}
	case m.IsArray():
		values, _ := m.ToArray()
		out := reply{list: make([]reply, len(values))}
		for i := range values {
			out.list[i] = parseMessage(&values[i])
		}
		return out
	case m.IsMap():
		values, _ := m.ToMap()
		var out reply
		for name, value := range values {
			out.list = append(out.list, reply{text: name}, parseMessage(&value))
		}
		return out
	}
	s, _ := m.ToString()
	return reply{text: s}
}
