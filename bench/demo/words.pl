# A small real program of the kind that spends its time in malloc: counts made-up words in a hash of arrays, sorts,
# joins and splits them. Prints a checksum (which must not depend on the allocator), its wall time and its peak memory.
use strict;
use warnings;
use Time::HiRes qw(time);

my $start = time;
my $seed = 42;
sub random { $seed = ($seed * 1103515245 + 12345) & 0x7fffffff; return $seed % $_[0]; }

my %count;
my %places;
for my $i (1 .. 600_000) {
    my $word = join '', map { chr(97 + random(6)) } 1 .. 3 + random(5);
    $count{$word}++;
    push @{ $places{$word} }, $i if random(4) == 0;
}
my @words = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
my $text = join ' ', map { "$_:$count{$_}" } @words;
my $sum = 0;
$sum = ($sum * 31 + length($_) + unpack('%32C*', $_)) % 1_000_000_007 for split / /, $text;

my $peak_kib = 0;
if (open my $status, '<', '/proc/self/status') {
    while (<$status>) { $peak_kib = $1 if /^VmHWM:\s+(\d+)/; }
}
printf "%d %.3f %d\n", $sum, time - $start, $peak_kib;
