# shellcheck shell=bash
# The lines of tests/rxe/connections.tsv, for test-rxe, which sources this: programs that connect by librdmacm.
: "${stage=}" "${limit=}" "${output=}"

read_settings() { # SETTINGS: into the variables of these names
    local word
    environment='' network=none expected='' unexpected='' killed='' has_sibling=no group='' fixed_port=''
    for word in $1; do
        case $word in
            PAGEWIRE_*) environment+="$word " ;;
            FAIL=*) environment+="PAGEWIRE_FAIL=@$stage/${word#*=}.rules " ;;
            NETWORK=*) network=${word#*=} expected+=" $(counts_of "$network" | tr '\n' ' ')" ;;
            SEEN=*) expected+=" ${word#*=}" ;;
            UNSEEN=*) unexpected+=" ${word#*=}" ;;
            KILLED=*) killed=${word#*=} ;;
            SIBLING=yes) has_sibling=yes ;;
            GROUP=*) group=${word#*=} ;;
            PORT=*) fixed_port=${word#*=} ;;
            *) echo "no setting: $word" >&2; exit 1 ;;
        esac
    done
}

# Until the server is ready: its kernel has the ID, its Pagewire the name of the port; datagrams of rsockets have a UDP port; a member of a
# group has its Ethernet address.
listens() { # SIDE PORT GROUP
    local ready="grep -q '@pagewire-cm-.*-$2\$' /proc/net/unix" wait
    [ "$1" = pagewire ] || ready="rdma resource show cm_id | grep 'LISTEN' | grep -q ':$2 '"
    ready+=" || grep -qi ':$(printf %04X "$2") ' /proc/net/udp /proc/net/udp6"
    [ -z "$3" ] || ready="grep -q '$3' /proc/net/dev_mcast"
    wait="for i in \$(seq 100); do if $ready; then exit 0; fi; sleep 0.1; done; exit 1"
    if [ "$1" = rxe ]; then guest "$wait" >/dev/null; else bash -c "$wait"; fi
}

# What a side runs, and the status that is expected.
command_of() { # SIDE COMMAND IS-KILLED
    local command="timeout $limit $2"
    [ "$1" = rxe ] || command="$environment$stage/bin/pagewire run --path udp -- $command"
    [ "$3" = no ] || command+='; [ $? -eq 137 ]'
    printf %s "$command"
}

says() { # END PATTERN
    [ "$2" = - ] || grep -qE -- "$2" "$output/$1" || { echo "$1: nothing says '$2'" >>"$output/client"; return 1; }
}

# Another process of Pagewire's end, until a client has come to it.
start_sibling() { # ADDRESS PORT
    at pagewire "$(command_of pagewire "connector server $1 $2" no)" >"$output/sibling" &
    sibling=$!
    listens pagewire "$2" ''
}

end_sibling() { # ADDRESS PORT
    local status=0
    guest "timeout $limit connector client $1 $2" >>"$output/sibling" || status=1
    wait "$sibling" || status=1
    [ "$status" -eq 0 ] || sed 's/^/sibling: /' "$output/sibling" >>"$output/client"
    return "$status"
}

connect() { # SERVER-SIDE FAMILY SETTINGS SERVER CLIENT SERVER-SAYS CLIENT-SAYS
    local side=$1 client=pagewire status=0 waiting commands=()
    declare -A address=([pagewire]=$host_address [rxe]=$guest_address) is_killed=([server]=no [client]=no)
    [ "$2" = 4 ] || address=([pagewire]=$host_address_6 [rxe]=$guest_address_6)
    [ "$side" = rxe ] || client=rxe
    port=$((port + 2))
    read_settings "$3"
    [ -z "$killed" ] || is_killed[$killed]=yes
    for words in "$4" "$5"; do
        words=${words//'{server}'/${address[$side]}}
        words=${words//'{client}'/${address[$client]}}
        commands+=("${words//'{port}'/$port}")
    done
    [ "$has_sibling" = no ] || start_sibling "$host_address" $((port + 1)) || status=1
    relay "$network"
    at "$side" "$(command_of "$side" "${commands[0]}" "${is_killed[server]}")" >"$output/server" &
    waiting=$!
    listens "$side" "${fixed_port:-$port}" "$group" || { echo "the server did not listen" >>"$output/server"; status=1; }
    at "$client" "$(command_of "$client" "${commands[1]}" "${is_killed[client]}")" >"$output/client" || status=1
    wait "$waiting" || status=1
    relay none
    [ "$has_sibling" = no ] || end_sibling "$host_address" $((port + 1)) || status=1
    says server "$6" && says client "$7" || status=1
    # shellcheck disable=SC2086 # a list of words
    has_counted $expected && has_not_counted $unexpected || status=1
    return "$status"
}
