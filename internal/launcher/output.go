package launcher

import (
	"strings"
	"sync"
)

// maxOutput is the number of bytes of QEMU's last messages in an Ended. Kubelet keeps 4096 of it.
const maxOutput = 1500

// maxMessage is the number of bytes of why a machine or a job has ended.
const maxMessage = 3000

// ending returns the end of a message, which has the reason, if it is too long: kubelet keeps the last 4096 bytes of a report, which nobody
// can read without its beginning.
func ending(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return "..." + strings.ToValidUTF8(message[len(message)-maxMessage:], "")
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-maxOutput):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(t.text), ""))
}
