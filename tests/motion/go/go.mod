module motion

go 1.19
