// What every Go program of the ecosystem suite shares: its arguments, and one line per check.
//
// PROGRAM BOOTSTRAP PREFIX prints "ok CHECK", "absent CHECK: why" or "failed CHECK: why"; the suite
// (odradek_e2e/ecosystem/contract.py) says what each check does, and looks at the result itself.
package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	records    = 100
	perCodec   = 50 // records of each codec in the topic that librdkafka has written
	partitions = 4
	deadline   = 120 * time.Second
)

var (
	bootstrap = os.Args[1]
	prefix    = os.Args[2]
	codecs    = []string{"none", "gzip", "snappy", "lz4", "zstd"}
	printing  sync.Mutex
)

func check(name string, work func() error) {
	err := work()
	printing.Lock()
	defer printing.Unlock()
	if err != nil {
		fmt.Printf("failed %s: %v\n", name, err)
	} else {
		fmt.Printf("ok %s\n", name)
	}
}

func absent(name string, why string) { fmt.Printf("absent %s: %s\n", name, why) }

func key(i int) string { return fmt.Sprintf("k%d", i) }
func value(what string, i int) string {
	return fmt.Sprintf("%s %d aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", what, i)
}
func header(i int) string      { return fmt.Sprintf("%d", i) }
func topic(name string) string { return prefix + "-" + name }

// same compares one record with the i-th of a series.
func same(what string, i int, k, v, h string) error {
	if k != key(i) || v != value(what, i) || h != header(i) {
		return fmt.Errorf("record %d of %s: key %q, value %q, header %q", i, what, k, v, h)
	}
	return nil
}

// Assignments of the members of a group, as they report them.
type assignments struct {
	lock  sync.Mutex
	owned map[string]int
	any   chan struct{}
}

func newAssignments() *assignments {
	return &assignments{owned: map[string]int{}, any: make(chan struct{}, 1)}
}

func (a *assignments) set(member string, count int) {
	a.lock.Lock()
	a.owned[member] = count
	a.lock.Unlock()
	select {
	case a.any <- struct{}{}:
	default: // whoever waits looks at all members
	}
}

// wait returns when the members own these numbers of partitions.
func (a *assignments) wait(wanted map[string]int) error {
	late := time.After(deadline)
	for {
		a.lock.Lock()
		done := true
		for member, count := range wanted {
			done = done && a.owned[member] == count
		}
		now := fmt.Sprint(a.owned)
		a.lock.Unlock()
		if done {
			return nil
		}
		select {
		case <-a.any:
		case <-late:
			return fmt.Errorf("the members own %s, not %v", now, wanted)
		}
	}
}
