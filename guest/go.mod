module github.com/keelson-dev/keelson/guest

go 1.26.0

require (
	github.com/creack/pty v1.1.24
	github.com/gliderlabs/ssh v0.3.8
	github.com/google/go-cmp v0.7.0
	github.com/insomniacslk/dhcp v0.0.0-20260901064844-234b97448fae
	github.com/klauspost/compress v1.20.3
	github.com/pierrec/lz4/v4 v4.1.22
	github.com/u-root/u-root v0.16.0
	github.com/ulikunitz/xz v0.5.17
	github.com/vishvananda/netlink v1.3.1
	go.yaml.in/yaml/v3 v3.0.6
	golang.org/x/crypto v0.57.0
	golang.org/x/sys v0.49.0
	golang.org/x/term v0.47.0
	mvdan.cc/sh/v3 v3.14.1
)

require (
	github.com/anmitsu/go-shlex v0.0.0-20200514113438-38f4b401e2be // indirect
	github.com/cenkalti/backoff/v4 v4.1.3 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/ishidawataru/sctp v0.0.0-20230406120618-7ff4192f6ff2 // indirect
	github.com/josharian/native v1.1.0 // indirect
	github.com/klauspost/pgzip v1.2.6 // indirect
	github.com/mdlayher/packet v1.1.2 // indirect
	github.com/mdlayher/socket v0.5.1 // indirect
	github.com/mdlayher/vsock v1.2.1 // indirect
	github.com/rck/unit v0.0.3 // indirect
	github.com/rekby/gpt v0.0.0-20200219180433-a930afbc6edc // indirect
	github.com/u-root/cpuid v0.0.1-0.20250320140348-cc5fe81d966c // indirect
	github.com/u-root/gobusybox/src v0.0.0-20250101170133-2e884e4509c7 // indirect
	github.com/u-root/uio v0.0.0-20240224005618-d2acac8f3701 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	golang.org/x/exp v0.0.0-20250305212735-054e65f0b394 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/tools v0.49.0 // indirect
	pack.ag/tftp v1.0.1-0.20181129014014-07909dfbde3c // indirect
)

tool (
	github.com/u-root/gobusybox/src/cmd/makebb
	github.com/u-root/u-root/cmds/core/base64
	github.com/u-root/u-root/cmds/core/basename
	github.com/u-root/u-root/cmds/core/blkid
	github.com/u-root/u-root/cmds/core/cat
	github.com/u-root/u-root/cmds/core/chmod
	github.com/u-root/u-root/cmds/core/chroot
	github.com/u-root/u-root/cmds/core/cmp
	github.com/u-root/u-root/cmds/core/cp
	github.com/u-root/u-root/cmds/core/date
	github.com/u-root/u-root/cmds/core/dd
	github.com/u-root/u-root/cmds/core/df
	github.com/u-root/u-root/cmds/core/dirname
	github.com/u-root/u-root/cmds/core/dmesg
	github.com/u-root/u-root/cmds/core/du
	github.com/u-root/u-root/cmds/core/find
	github.com/u-root/u-root/cmds/core/free
	github.com/u-root/u-root/cmds/core/grep
	github.com/u-root/u-root/cmds/core/gzip
	github.com/u-root/u-root/cmds/core/head
	github.com/u-root/u-root/cmds/core/hexdump
	github.com/u-root/u-root/cmds/core/hostname
	github.com/u-root/u-root/cmds/core/id
	github.com/u-root/u-root/cmds/core/insmod
	github.com/u-root/u-root/cmds/core/ip
	github.com/u-root/u-root/cmds/core/kill
	github.com/u-root/u-root/cmds/core/ln
	github.com/u-root/u-root/cmds/core/losetup
	github.com/u-root/u-root/cmds/core/ls
	github.com/u-root/u-root/cmds/core/lsmod
	github.com/u-root/u-root/cmds/core/mkdir
	github.com/u-root/u-root/cmds/core/mkfifo
	github.com/u-root/u-root/cmds/core/mknod
	github.com/u-root/u-root/cmds/core/mktemp
	github.com/u-root/u-root/cmds/core/more
	github.com/u-root/u-root/cmds/core/mount
	github.com/u-root/u-root/cmds/core/mv
	github.com/u-root/u-root/cmds/core/netcat
	github.com/u-root/u-root/cmds/core/netstat
	github.com/u-root/u-root/cmds/core/nohup
	github.com/u-root/u-root/cmds/core/pidof
	github.com/u-root/u-root/cmds/core/ping
	github.com/u-root/u-root/cmds/core/printenv
	github.com/u-root/u-root/cmds/core/ps
	github.com/u-root/u-root/cmds/core/readlink
	github.com/u-root/u-root/cmds/core/realpath
	github.com/u-root/u-root/cmds/core/rm
	github.com/u-root/u-root/cmds/core/rmmod
	github.com/u-root/u-root/cmds/core/scp
	github.com/u-root/u-root/cmds/core/seq
	github.com/u-root/u-root/cmds/core/shasum
	github.com/u-root/u-root/cmds/core/sleep
	github.com/u-root/u-root/cmds/core/sort
	github.com/u-root/u-root/cmds/core/strings
	github.com/u-root/u-root/cmds/core/stty
	github.com/u-root/u-root/cmds/core/switch_root
	github.com/u-root/u-root/cmds/core/sync
	github.com/u-root/u-root/cmds/core/tail
	github.com/u-root/u-root/cmds/core/tar
	github.com/u-root/u-root/cmds/core/tee
	github.com/u-root/u-root/cmds/core/time
	github.com/u-root/u-root/cmds/core/timeout
	github.com/u-root/u-root/cmds/core/touch
	github.com/u-root/u-root/cmds/core/tr
	github.com/u-root/u-root/cmds/core/truncate
	github.com/u-root/u-root/cmds/core/tty
	github.com/u-root/u-root/cmds/core/umount
	github.com/u-root/u-root/cmds/core/uname
	github.com/u-root/u-root/cmds/core/uniq
	github.com/u-root/u-root/cmds/core/uptime
	github.com/u-root/u-root/cmds/core/wc
	github.com/u-root/u-root/cmds/core/wget
	github.com/u-root/u-root/cmds/core/which
	github.com/u-root/u-root/cmds/core/xargs
)
