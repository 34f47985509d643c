// The program that the precompiled header belongs to.
int main() {}
